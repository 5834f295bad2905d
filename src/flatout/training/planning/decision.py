"""The decision: a pure function of facts (rows, bytes, free memory, model, options) to a plan with its reasons."""

from __future__ import annotations

from dataclasses import replace

from flatout.base.errors import Reason, reason
from flatout.base.options import Options
from flatout.base.sizes import as_size
from flatout.data.stream.chunks import even_chunks, steps_per_chunk
from flatout.seam.versions import is_tested, tested_versions

from .plan import CallFacts, Plan

BACKENDS = ("jax", "tensorflow", "torch")
# Of free host memory, for tables that are decoded into it before they are sent to a device with memory of its own.
_HOST_SHARE = 0.6
# Larger ones are decoded into the device's memory on a CPU too: first into an array, they would take it twice.
_LARGE_TABLE = 256_000_000


def decide(facts: CallFacts, options: Options) -> Plan:
    """Choose engine and placement. No side effects."""
    told = [] if facts.native_obstacle is None else [facts.native_obstacle]
    if why := _refusals(facts, options):
        return Plan(facts, "stock", "host", (*told, *why))
    engine = "native" if facts.native else facts.backend
    if not is_tested(facts.keras_version) and not options.force:
        told.append(reason("self_checked", facts.keras_version, tested_versions()))
    if facts.workers > 1:
        told.append(reason("divided", facts.workers))
    if facts.rows is None:
        return Plan(facts, engine, "streamed", (*told, reason("batches", facts.source)))
    free = facts.free_bytes
    if free is not None and facts.host_bytes is not None and not facts.copies:
        # Its memory is the host's, of which this process may have less to itself than there is.
        free = min(free, facts.host_bytes)
    budget = None if free is None else options.budget(free)
    # Each device has a copy, all of them in the host's memory if it is theirs.
    nbytes = (facts.nbytes or 0) * (1 if facts.copies else facts.workers)
    placement = options.data
    if options.data == "auto" and budget is not None and nbytes > budget:
        placement = "streamed"
        told.append(reason("memory", as_size(nbytes), as_size(budget)))
    elif options.data == "auto":
        pays = facts.copies or facts.table_bytes > _LARGE_TABLE
        placement = "direct" if facts.is_file and pays else "resident"
    chunk = None
    if placement == "streamed":
        batch_size = facts.batch_size or 1
        most = steps_per_chunk(nbytes * batch_size // max(1, facts.rows)) * (2 if facts.copies else 1)
        chunk = even_chunks(facts.rows // batch_size, most)
    plan = Plan(facts, engine, placement, tuple(told), budget, chunk, _host_budget(facts, options))
    return with_notes(plan)


def with_notes(plan: Plan) -> Plan:
    """A plan with what it makes of tables as one of its reasons, where that takes what the user may want to know of."""
    if plan.tables != "disk":
        return plan
    note = reason("decoded_to_disk", as_size(plan.facts.table_bytes), as_size(plan.host_budget or 0))
    return replace(plan, reasons=(*plan.reasons, note))


def _host_budget(facts: CallFacts, options: Options) -> int | None:
    if facts.host_bytes is None:
        return None
    # Without memory of its own the device has the host's, for which the user may have set a limit.
    return int(_HOST_SHARE * facts.host_bytes) if facts.copies else options.budget(facts.host_bytes)


def _refusals(facts: CallFacts, options: Options) -> list[Reason]:
    if not options.enabled:
        return [reason("disabled")]
    if options.engine == "stock":
        return [reason("asked_for_stock")]
    if facts.backend not in BACKENDS:
        return [reason("backend", facts.backend)]
    if facts.obstacles:
        return list(facts.obstacles)
    can_be = {"resident": facts.rows is not None, "direct": facts.is_file}
    if not can_be.get(options.data, True):
        return [reason("placement", options.data, facts.source)]
    # Native kernels, or several devices, were asked for, whatever they cost.
    if facts.costs is None or facts.native or facts.workers > 1 or options.force:
        return []
    if not facts.costs.saved_by_step:
        is_wanted = options.strict or options.engine == facts.backend or options.precision == "fast"
        return [] if is_wanted else [reason("nothing_to_save", facts.source)]
    if facts.steps is None:
        return []
    return [reason("small", facts.steps, facts.costs)] if facts.costs.saved_by(facts.steps) <= 0 else []
