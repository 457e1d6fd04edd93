# SPDX-License-Identifier: Apache-2.0
"""Add the host, the registered domain and the path of URLs: `add_url_parts`."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from curator_df.arguments import require_string
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.extras import require_package
from curator_df.kernels.text.buffers import repeated_texts, text_chunks
from curator_df.kernels.urls.parts import registered_domain, spans_of, split_urls
from curator_df.ops.host_only import require_host

COLUMNS = ("host", "domain", "path")
TEXT: Any = pd.StringDtype("pyarrow")
LIBRARY_BYTES = 25_000_000
"""Memory of tldextract, idna and the public suffix list in a process, in bytes. Measured (private bytes): 13 MB, and 20 MB where
requests was not imported before."""
# Measured (tests/contracts/memory_server.py): 1.2 on URLs of 60 bytes, 1.8 on URLs of 6 bytes with a number; the rest is for
# tables of short international names, whose ASCII form is longer.
PEAK_FACTOR = 3.5


def add_url_parts(
    df: dd.DataFrame, *, url: str = "url", prefix: str = "url_", private_suffixes: bool = False
) -> dd.DataFrame:
    """Add the host, the registered domain and the path of each URL as three columns.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    url : str, default "url"
        Column of URLs.
    prefix : str, default ``"url_"``
        Beginning of the names of the columns.
    private_suffixes : bool, default False
        Whether suffixes under which a company lets others register names, such as ``github.io``, count as public
        suffixes: then the registered domain of ``https://me.github.io`` is ``me.github.io``, else ``github.io``.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with three columns of strings. ``url_host``: the host in lower case, in its ASCII form (IDNA), without
        user, port and trailing dots; an IPv6 address in brackets. ``url_domain``: the registered domain, which is the
        public suffix and one label more; null for addresses, single labels and public suffixes. ``url_path``: the path as
        it is written, ``/`` if it is empty. All three are null where the URL is null, empty or not a URL with a host.

    Raises
    ------
    ColumnError
        If the column of URLs is missing, or a new column already exists.
    MissingExtraError
        If tldextract is not installed (the extra ``urls``).
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    keep_urls, describe_domains

    Notes
    -----
    Rows: same. Columns: plus ``url_host``, ``url_domain``, ``url_path``. Backends: pandas. Peak extra memory: 3.5 x block,
    and 25 MB in each worker. Computes: no.

    No string is an error; a text of more than 64 kB is not a URL. A URL may lack the scheme (``//host/path``,
    ``host.com/path``); without slashes before it, a host needs a dot, and a last label that does not begin with a
    digit. IPv4 addresses are found in all forms that browsers accept (``0x7f.1`` is ``127.0.0.1``). The public suffix
    list is the copy inside the installed tldextract, so no network is used, and all workers with the same version
    give the same domains. A last label that is not in the list counts as a suffix, as the list's algorithm says. Work
    for a host is not repeated: each process remembers the last 8,192.

    References
    ----------
    .. [1] WHATWG, URL Standard, https://url.spec.whatwg.org
    .. [2] Mozilla, Public Suffix List, https://publicsuffix.org/list/

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> pages = pd.DataFrame({"url": ["https://me@News.BBC.co.uk:443/a?b=1", "http://bücher.example", "n/a"]})
    >>> dd.from_pandas(pages, npartitions=1).pipe(add_url_parts).compute().drop(columns="url")
                     url_host              url_domain url_path
    0          news.bbc.co.uk               bbc.co.uk       /a
    1  xn--bcher-kva.example  xn--bcher-kva.example        /
    2                    <NA>                    <NA>     <NA>
    """
    operator = "add_url_parts"
    require_text(df, operator, url, parameter="url")
    require_host(df._meta, operator)
    require_string(operator, "prefix", prefix)
    if not isinstance(private_suffixes, bool):
        raise ParameterError(f"{operator}: private_suffixes={private_suffixes!r} must be True or False")
    names = [f"{prefix}{name}" for name in COLUMNS]
    refuse_columns(df, operator, *names, parameter="prefix")
    require_package(operator, "tldextract", "urls")
    kernel = BlockKernel(
        operator,
        add_url_parts_block,
        {"url": url, "prefix": prefix, "private_suffixes": private_suffixes},
        price=suffix_list_price(PEAK_FACTOR),
    )
    return map_blocks(df, kernel, meta=df._meta.assign(**{name: pd.Series(dtype=TEXT) for name in names}))


def suffix_list_price(peak_factor: float, held_bytes: int = 0, *, is_measured: bool = True) -> Price:
    """Return the price of a step that uses the public suffix list, and keeps ``held_bytes`` of its own."""
    return Price(
        peak_factor,
        held_bytes=held_bytes + LIBRARY_BYTES,
        libraries={"tldextract": LIBRARY_BYTES},
        is_measured=is_measured,
    )


def add_url_parts_block(block: Any, *, url: str, prefix: str, private_suffixes: bool) -> Outcome:
    """Kernel of `add_url_parts`."""
    require_host(block, "add_url_parts")
    parts: list[list[pa.Array]] = [[], [], []]
    counters = {"urls_without_host": 0}
    for urls in spans_of(text_chunks(block[url])):
        split = split_urls(urls)
        domains = [registered_domain(host, private=private_suffixes) for host in split.hosts]
        counters["urls_without_host"] += int((split.codes < 0).sum())
        columns = (repeated_texts(split.hosts, split.codes), repeated_texts(domains, split.codes))
        for chunks, column in zip(parts, columns, strict=False):
            chunks.extend(column.__arrow_array__().chunks)
        parts[2].append(split.paths)
    arrays = (TEXT.__from_arrow__(pa.chunked_array(chunks, type=pa.large_string())) for chunks in parts)
    added = {
        f"{prefix}{name}": pd.Series(array, index=block.index) for name, array in zip(COLUMNS, arrays, strict=True)
    }
    return Outcome(block.assign(**added), counters=counters)
