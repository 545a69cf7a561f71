"""Is a series of checkpoints what it claims to be? `audit(run)` says so, step by step, with its evidence."""

from checkpoints.audit.audit import Audit, audit
from checkpoints.audit.fault import Fault
from checkpoints.audit.hashes import audit_hashes

__all__ = ["Audit", "Fault", "audit", "audit_hashes"]
