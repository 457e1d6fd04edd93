# SPDX-License-Identifier: Apache-2.0
"""curator_df: curate text for training language models with Dask, under a memory budget.

Name one number of bytes; the plan is refused before it starts if it cannot fit; what runs stays under it, on any input;
what is interrupted resumes; every dropped row has a reason.
"""

import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

# First of all imports: it refuses an address space in which those of libraries end with any error.
from curator_df.memory import address_space as _address_space  # noqa: F401

# isort: split
from curator_df.core.calls import refuse_curate_of_pandas as _refuse_curate_of_pandas
from curator_df.core.importing import lazy_names as _lazy_names
from curator_df.core.importing import when_imported as _when_imported

if _TYPE_CHECKING:
    from curator_df import errors, profiles
    from curator_df.cluster.connect import Connection, connect
    from curator_df.cluster.jobs import JobCluster, job_cluster, slurm_cluster
    from curator_df.cluster.local import Cluster, start_cluster
    from curator_df.core.planning.plan import Plan
    from curator_df.io.concat import concat
    from curator_df.io.csv.reader import read_csv
    from curator_df.io.device_transfer import to_backend
    from curator_df.io.jsonl.reader import read_jsonl
    from curator_df.io.output.checkpoint import checkpoint
    from curator_df.io.output.push_to_hub import push_to_hub
    from curator_df.io.output.receipts import read_receipt
    from curator_df.io.output.write import TablesByValue, write_by, write_jsonl, write_parquet
    from curator_df.io.parquet.reader import read_parquet
    from curator_df.io.parquet.table_formats import read_delta, read_iceberg
    from curator_df.io.shuffle.operators import shuffle_rows
    from curator_df.io.text_files import read_text_files
    from curator_df.io.warc.reader import read_warc
    from curator_df.kernels.minhash.scheme import Scheme
    from curator_df.memory.resources import Resources, resources
    from curator_df.models.classifiers import catalogue as classifiers
    from curator_df.models.classifiers.catalogue import Classifier
    from curator_df.models.classifiers.classification import add_class, keep_class
    from curator_df.models.classifiers.prompt_scores import add_prompt_scores
    from curator_df.models.completion.operator import add_completion
    from curator_df.models.embeddings.embedding import add_embedding
    from curator_df.models.embeddings.semantic_duplicates import drop_semantic_duplicates, find_semantic_duplicates
    from curator_df.models.model import Model, model
    from curator_df.models.perplexity import add_perplexity
    from curator_df.models.presidio import Presidio, presidio
    from curator_df.models.token_count import add_token_count
    from curator_df.models.tokens.blend import blend
    from curator_df.models.tokens.write import write_tokens
    from curator_df.models.tokens.write_many import write_many
    from curator_df.monitor.alerts import Alert, AlertRule
    from curator_df.monitor.memory_monitor import MemoryMonitor, monitor_memory
    from curator_df.monitor.memory_profile import MemoryProfile, profile_memory
    from curator_df.monitor.metrics_server import MetricsServer, serve_metrics
    from curator_df.monitor.recommend import Recommendation, recommend
    from curator_df.ops.cleaning.contamination import add_contamination, drop_contaminated, remove_contamination
    from curator_df.ops.cleaning.markup import remove_html, remove_markdown
    from curator_df.ops.cleaning.normalization import (
        normalize_newlines,
        normalize_unicode,
        normalize_whitespace,
        remove_urls,
    )
    from curator_df.ops.cleaning.redaction import redact_pii
    from curator_df.ops.cleaning.removals import (
        remove_boilerplate,
        remove_c4_lines,
        remove_lines,
        remove_outside,
        remove_quotation_marks,
    )
    from curator_df.ops.describe import describe
    from curator_df.ops.duplicates.audit import DuplicateAudit, audit_duplicates
    from curator_df.ops.duplicates.duplicate_report import (
        DuplicateReport,
        NearDuplicateReport,
        describe_exact_duplicates,
        describe_near_duplicates,
        describe_semantic_duplicates,
    )
    from curator_df.ops.duplicates.exact import Best, best, drop_exact_duplicates, find_exact_duplicates
    from curator_df.ops.duplicates.index import Index, open_index
    from curator_df.ops.duplicates.near_duplicates import add_minhash, drop_near_duplicates, find_near_duplicates
    from curator_df.ops.duplicates.repeated_parts import remove_repeated_parts
    from curator_df.ops.duplicates.repeated_substrings import remove_repeated_substrings
    from curator_df.ops.explain import explain, forget
    from curator_df.ops.filters.drops import describe_drops
    from curator_df.ops.filters.metrics import add_metrics
    from curator_df.ops.filters.profile import add_profile, keep_profile
    from curator_df.ops.filters.quality_tiers import add_quality_tier
    from curator_df.ops.filters.rules import Profile, Rule
    from curator_df.ops.filters.source_code import add_comment_ratio, add_html_text_ratio
    from curator_df.ops.filters.thresholds import ThresholdExplorer, explore_thresholds
    from curator_df.ops.filters.user_metrics import UserMetric
    from curator_df.ops.filters.where import keep_where
    from curator_df.ops.importance import add_importance, describe_importance
    from curator_df.ops.joins.join import join
    from curator_df.ops.language.identification import add_language, keep_language
    from curator_df.ops.preview import Preview, preview
    from curator_df.ops.rows.document_parts import join_documents, split_documents
    from curator_df.ops.rows.ids import add_ids
    from curator_df.ops.rows.importance_sample import sample_by_importance
    from curator_df.ops.rows.repeating import repeat_rows
    from curator_df.ops.rows.sample import sample_rows, split_rows
    from curator_df.ops.urls.domain_counts import describe_domains
    from curator_df.ops.urls.url_filter import keep_urls
    from curator_df.ops.urls.url_parts import add_url_parts
    from curator_df.profiles import minhash
    from curator_df.receipts.comparison import compare_receipts
    from curator_df.receipts.receipt import Receipt
    from curator_df.recipes.recipe import Recipe, load_recipe


__version__ = "0.1.0"

__all__ = [
    "Alert",
    "AlertRule",
    "Best",
    "Classifier",
    "Cluster",
    "Connection",
    "DuplicateAudit",
    "DuplicateReport",
    "Index",
    "JobCluster",
    "MemoryMonitor",
    "MemoryProfile",
    "MetricsServer",
    "Model",
    "NearDuplicateReport",
    "Plan",
    "Presidio",
    "Preview",
    "Profile",
    "Receipt",
    "Recipe",
    "Recommendation",
    "Resources",
    "Rule",
    "Scheme",
    "TablesByValue",
    "ThresholdExplorer",
    "UserMetric",
    "add_class",
    "add_comment_ratio",
    "add_completion",
    "add_contamination",
    "add_embedding",
    "add_html_text_ratio",
    "add_ids",
    "add_importance",
    "add_language",
    "add_metrics",
    "add_minhash",
    "add_perplexity",
    "add_profile",
    "add_prompt_scores",
    "add_quality_tier",
    "add_token_count",
    "add_url_parts",
    "audit_duplicates",
    "best",
    "blend",
    "checkpoint",
    "classifiers",
    "compare_receipts",
    "concat",
    "connect",
    "describe",
    "describe_domains",
    "describe_drops",
    "describe_exact_duplicates",
    "describe_importance",
    "describe_near_duplicates",
    "describe_semantic_duplicates",
    "drop_contaminated",
    "drop_exact_duplicates",
    "drop_near_duplicates",
    "drop_semantic_duplicates",
    "errors",
    "explain",
    "explore_thresholds",
    "find_exact_duplicates",
    "find_near_duplicates",
    "find_semantic_duplicates",
    "forget",
    "job_cluster",
    "join",
    "join_documents",
    "keep_class",
    "keep_language",
    "keep_profile",
    "keep_urls",
    "keep_where",
    "load_recipe",
    "minhash",
    "model",
    "monitor_memory",
    "normalize_newlines",
    "normalize_unicode",
    "normalize_whitespace",
    "open_index",
    "presidio",
    "preview",
    "profile_memory",
    "profiles",
    "push_to_hub",
    "read_csv",
    "read_delta",
    "read_iceberg",
    "read_jsonl",
    "read_parquet",
    "read_receipt",
    "read_text_files",
    "read_warc",
    "recommend",
    "redact_pii",
    "remove_boilerplate",
    "remove_c4_lines",
    "remove_contamination",
    "remove_html",
    "remove_lines",
    "remove_markdown",
    "remove_outside",
    "remove_quotation_marks",
    "remove_repeated_parts",
    "remove_repeated_substrings",
    "remove_urls",
    "repeat_rows",
    "resources",
    "sample_by_importance",
    "sample_rows",
    "serve_metrics",
    "shuffle_rows",
    "slurm_cluster",
    "split_documents",
    "split_rows",
    "start_cluster",
    "to_backend",
    "write_by",
    "write_jsonl",
    "write_many",
    "write_parquet",
    "write_tokens",
]

_PLACES = {
    "Alert": "monitor.alerts:Alert",
    "AlertRule": "monitor.alerts:AlertRule",
    "Best": "ops.duplicates.exact:Best",
    "Classifier": "models.classifiers.catalogue:Classifier",
    "Cluster": "cluster.local:Cluster",
    "Connection": "cluster.connect:Connection",
    "DuplicateAudit": "ops.duplicates.audit:DuplicateAudit",
    "DuplicateReport": "ops.duplicates.duplicate_report:DuplicateReport",
    "Index": "ops.duplicates.index:Index",
    "JobCluster": "cluster.jobs:JobCluster",
    "MemoryMonitor": "monitor.memory_monitor:MemoryMonitor",
    "MemoryProfile": "monitor.memory_profile:MemoryProfile",
    "MetricsServer": "monitor.metrics_server:MetricsServer",
    "Model": "models.model:Model",
    "NearDuplicateReport": "ops.duplicates.duplicate_report:NearDuplicateReport",
    "Plan": "core.planning.plan:Plan",
    "Presidio": "models.presidio:Presidio",
    "Preview": "ops.preview:Preview",
    "Profile": "ops.filters.rules:Profile",
    "Receipt": "receipts.receipt:Receipt",
    "Recipe": "recipes.recipe:Recipe",
    "Recommendation": "monitor.recommend:Recommendation",
    "Resources": "memory.resources:Resources",
    "Rule": "ops.filters.rules:Rule",
    "Scheme": "kernels.minhash.scheme:Scheme",
    "TablesByValue": "io.output.write:TablesByValue",
    "ThresholdExplorer": "ops.filters.thresholds:ThresholdExplorer",
    "UserMetric": "ops.filters.user_metrics:UserMetric",
    "add_class": "models.classifiers.classification:add_class",
    "add_comment_ratio": "ops.filters.source_code:add_comment_ratio",
    "add_completion": "models.completion.operator:add_completion",
    "add_contamination": "ops.cleaning.contamination:add_contamination",
    "add_embedding": "models.embeddings.embedding:add_embedding",
    "add_html_text_ratio": "ops.filters.source_code:add_html_text_ratio",
    "add_ids": "ops.rows.ids:add_ids",
    "add_importance": "ops.importance:add_importance",
    "add_language": "ops.language.identification:add_language",
    "add_metrics": "ops.filters.metrics:add_metrics",
    "add_minhash": "ops.duplicates.near_duplicates:add_minhash",
    "add_perplexity": "models.perplexity:add_perplexity",
    "add_profile": "ops.filters.profile:add_profile",
    "add_prompt_scores": "models.classifiers.prompt_scores:add_prompt_scores",
    "add_quality_tier": "ops.filters.quality_tiers:add_quality_tier",
    "add_token_count": "models.token_count:add_token_count",
    "add_url_parts": "ops.urls.url_parts:add_url_parts",
    "audit_duplicates": "ops.duplicates.audit:audit_duplicates",
    "best": "ops.duplicates.exact:best",
    "blend": "models.tokens.blend:blend",
    "checkpoint": "io.output.checkpoint:checkpoint",
    "classifiers": "models.classifiers.catalogue",
    "compare_receipts": "receipts.comparison:compare_receipts",
    "concat": "io.concat:concat",
    "connect": "cluster.connect:connect",
    "describe": "ops.describe:describe",
    "describe_domains": "ops.urls.domain_counts:describe_domains",
    "describe_drops": "ops.filters.drops:describe_drops",
    "describe_exact_duplicates": "ops.duplicates.duplicate_report:describe_exact_duplicates",
    "describe_importance": "ops.importance:describe_importance",
    "describe_near_duplicates": "ops.duplicates.duplicate_report:describe_near_duplicates",
    "describe_semantic_duplicates": "ops.duplicates.duplicate_report:describe_semantic_duplicates",
    "drop_contaminated": "ops.cleaning.contamination:drop_contaminated",
    "drop_exact_duplicates": "ops.duplicates.exact:drop_exact_duplicates",
    "drop_near_duplicates": "ops.duplicates.near_duplicates:drop_near_duplicates",
    "drop_semantic_duplicates": "models.embeddings.semantic_duplicates:drop_semantic_duplicates",
    "errors": "errors",
    "explain": "ops.explain:explain",
    "explore_thresholds": "ops.filters.thresholds:explore_thresholds",
    "find_exact_duplicates": "ops.duplicates.exact:find_exact_duplicates",
    "find_near_duplicates": "ops.duplicates.near_duplicates:find_near_duplicates",
    "find_semantic_duplicates": "models.embeddings.semantic_duplicates:find_semantic_duplicates",
    "forget": "ops.explain:forget",
    "job_cluster": "cluster.jobs:job_cluster",
    "join": "ops.joins.join:join",
    "join_documents": "ops.rows.document_parts:join_documents",
    "keep_class": "models.classifiers.classification:keep_class",
    "keep_language": "ops.language.identification:keep_language",
    "keep_profile": "ops.filters.profile:keep_profile",
    "keep_urls": "ops.urls.url_filter:keep_urls",
    "keep_where": "ops.filters.where:keep_where",
    "load_recipe": "recipes.recipe:load_recipe",
    "minhash": "profiles.minhash",
    "model": "models.model:model",
    "monitor_memory": "monitor.memory_monitor:monitor_memory",
    "normalize_newlines": "ops.cleaning.normalization:normalize_newlines",
    "normalize_unicode": "ops.cleaning.normalization:normalize_unicode",
    "normalize_whitespace": "ops.cleaning.normalization:normalize_whitespace",
    "open_index": "ops.duplicates.index:open_index",
    "presidio": "models.presidio:presidio",
    "preview": "ops.preview:preview",
    "profile_memory": "monitor.memory_profile:profile_memory",
    "profiles": "profiles",
    "push_to_hub": "io.output.push_to_hub:push_to_hub",
    "read_csv": "io.csv.reader:read_csv",
    "read_delta": "io.parquet.table_formats:read_delta",
    "read_iceberg": "io.parquet.table_formats:read_iceberg",
    "read_jsonl": "io.jsonl.reader:read_jsonl",
    "read_parquet": "io.parquet.reader:read_parquet",
    "read_receipt": "io.output.receipts:read_receipt",
    "read_text_files": "io.text_files:read_text_files",
    "read_warc": "io.warc.reader:read_warc",
    "recommend": "monitor.recommend:recommend",
    "redact_pii": "ops.cleaning.redaction:redact_pii",
    "remove_boilerplate": "ops.cleaning.removals:remove_boilerplate",
    "remove_c4_lines": "ops.cleaning.removals:remove_c4_lines",
    "remove_contamination": "ops.cleaning.contamination:remove_contamination",
    "remove_html": "ops.cleaning.markup:remove_html",
    "remove_lines": "ops.cleaning.removals:remove_lines",
    "remove_markdown": "ops.cleaning.markup:remove_markdown",
    "remove_outside": "ops.cleaning.removals:remove_outside",
    "remove_quotation_marks": "ops.cleaning.removals:remove_quotation_marks",
    "remove_repeated_parts": "ops.duplicates.repeated_parts:remove_repeated_parts",
    "remove_repeated_substrings": "ops.duplicates.repeated_substrings:remove_repeated_substrings",
    "remove_urls": "ops.cleaning.normalization:remove_urls",
    "repeat_rows": "ops.rows.repeating:repeat_rows",
    "resources": "memory.resources:resources",
    "sample_by_importance": "ops.rows.importance_sample:sample_by_importance",
    "sample_rows": "ops.rows.sample:sample_rows",
    "serve_metrics": "monitor.metrics_server:serve_metrics",
    "shuffle_rows": "io.shuffle.operators:shuffle_rows",
    "slurm_cluster": "cluster.jobs:slurm_cluster",
    "split_documents": "ops.rows.document_parts:split_documents",
    "split_rows": "ops.rows.sample:split_rows",
    "start_cluster": "cluster.local:start_cluster",
    "to_backend": "io.device_transfer:to_backend",
    "write_by": "io.output.write:write_by",
    "write_jsonl": "io.output.write:write_jsonl",
    "write_many": "models.tokens.write_many:write_many",
    "write_parquet": "io.output.write:write_parquet",
    "write_tokens": "models.tokens.write:write_tokens",
}
"""Where each public name comes from, which is imported when it is first used; see `core.importing`."""
_FOLDERS = {
    name: name
    for name in (
        "cluster",
        "core",
        "files",
        "interactive",
        "io",
        "kernels",
        "memory",
        "models",
        "monitor",
        "ops",
        "recipes",
    )
}
_OPERATORS = (
    "add_class",
    "add_comment_ratio",
    "add_completion",
    "add_contamination",
    "add_embedding",
    "add_html_text_ratio",
    "add_ids",
    "add_importance",
    "add_language",
    "add_metrics",
    "add_minhash",
    "add_perplexity",
    "add_profile",
    "add_prompt_scores",
    "add_quality_tier",
    "add_token_count",
    "add_url_parts",
    "checkpoint",
    "describe",
    "describe_domains",
    "describe_drops",
    "describe_importance",
    "drop_contaminated",
    "drop_exact_duplicates",
    "drop_near_duplicates",
    "drop_semantic_duplicates",
    "explain",
    "explore_thresholds",
    "find_exact_duplicates",
    "find_near_duplicates",
    "find_semantic_duplicates",
    "forget",
    "join",
    "join_documents",
    "keep_class",
    "keep_language",
    "keep_profile",
    "keep_urls",
    "keep_where",
    "normalize_newlines",
    "normalize_unicode",
    "normalize_whitespace",
    "preview",
    "redact_pii",
    "remove_boilerplate",
    "remove_c4_lines",
    "remove_contamination",
    "remove_html",
    "remove_lines",
    "remove_markdown",
    "remove_outside",
    "remove_quotation_marks",
    "remove_repeated_parts",
    "remove_repeated_substrings",
    "remove_urls",
    "repeat_rows",
    "sample_by_importance",
    "sample_rows",
    "shuffle_rows",
    "split_documents",
    "split_rows",
    "to_backend",
    "write_by",
    "write_jsonl",
    "write_parquet",
    "write_tokens",
)
"""Operators that are methods of a table, as `df.curate.name`."""


_find = _lazy_names(__name__, {**_FOLDERS, **_PLACES}, globals())


def _register_operators() -> None:
    from curator_df.ops.accessor import register_operators

    register_operators(_OPERATORS, _find)


_when_imported("dask.dataframe", _register_operators)
_when_imported("pandas", _refuse_curate_of_pandas)
if "IPython" in _sys.modules:  # a notebook shows tables and completes names from the first cell on
    from curator_df.ops.notebook import integrate as _integrate

    _integrate()


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


if not _TYPE_CHECKING:  # with it, a type checker would take any name for a public one
    __getattr__ = _find
