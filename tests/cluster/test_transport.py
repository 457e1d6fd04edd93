# SPDX-License-Identifier: Apache-2.0
"""TLS in one argument, on a real cluster of worker processes."""

import importlib.util

import dask
import pytest
from distributed.security import Security

import curator_df as cdf
from curator_df import errors
from curator_df.cluster.transport import as_security
from curator_df.errors import MissingExtraError

HAS_CRYPTOGRAPHY = importlib.util.find_spec("cryptography") is not None


def test_certificates_that_cannot_be_used_are_named(tmp_path):
    pytest.importorskip("cryptography", reason="needs the tls extra")
    given = Security.temporary()
    names = [
        "tls_ca_file",
        *(f"tls_{role}_{what}" for role in ("client", "scheduler", "worker") for what in ("cert", "key")),
    ]
    good = {name: getattr(given, name) for name in names}
    assert as_security(Security(require_encryption=True, **good))
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate\n")
    for wrong, said in (
        ({}, "has no tls_ca_file, so nothing could be encrypted"),
        (good | {"tls_worker_key": None}, "has no tls_worker_key"),
        (good | {"tls_ca_file": str(tmp_path / "ca.pem")}, r"the file '.*ca\.pem', set as tls_ca_file, does not exist"),
        (good | {"tls_scheduler_cert": str(broken)}, "certificate and key of the scheduler cannot be used"),
    ):
        security = Security(require_encryption=True, **wrong)
        for start in (cdf.start_cluster, cdf.slurm_cluster):
            with pytest.raises(errors.ParameterError, match=said):
                start(memory="2GB", cpus=1, security=security)


def test_connections_are_encrypted_and_a_client_without_the_certificate_is_turned_away():
    pytest.importorskip("cryptography", reason="needs the tls extra")
    with cdf.start_cluster(memory="4GB", cpus=1, security=True, dashboard_port=None) as cluster:
        workers = cluster.client.scheduler_info(n_workers=-1)["workers"]
        assert all(address.startswith("tls://127.0.0.1:") for address in (cluster.client.scheduler.address, *workers))
        assert cluster.client.submit(sum, [1, 2]).result() == 3
        assert "TLS" in repr(cluster)
        with pytest.raises(errors.NoClusterError, match=r"no scheduler could be reached at tls://127.*TLS expects"):
            cdf.connect(cluster.client.scheduler.address)
    assert dask.config.get("scheduler", None) is None  # nothing is left of the client that could not begin


def test_what_would_not_encrypt_is_refused(monkeypatch):
    assert as_security(False) is None
    with pytest.raises(errors.ParameterError, match="require_encryption=False"):
        as_security(Security())
    own = Security.temporary() if HAS_CRYPTOGRAPHY else None
    if own is not None:
        assert as_security(own) is own
    with pytest.raises(errors.ParameterError, match="must be True, False or a"):
        as_security("yes")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[tls\]"):
        as_security(True)
