"""Parts of the service that the commands are given in tests."""

from portico.bootstrap.checks import check_audit, check_issuer, check_storage, check_traces
from portico.bootstrap.service import open_offline
from portico.entrypoints.cli.service_parts import Checks

CHECKS = Checks(check_storage, check_issuer, check_traces, check_audit, open_offline)
