"""How many instances a user, a role or everybody may hold: hard limits at create, soft ones for the planner, warm ones
for the pools."""

from trainshed_service.quotas.admission import Admission
from trainshed_service.quotas.rules import Rule, rules, soft_quotas
from trainshed_service.quotas.service import QuotaService
from trainshed_service.quotas.warm import warm_room

__all__ = ["Admission", "QuotaService", "Rule", "rules", "soft_quotas", "warm_room"]
