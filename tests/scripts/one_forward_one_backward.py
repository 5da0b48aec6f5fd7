"""A simulation of common/parallel/pipeline.cpp: the reference for the number of transfers in scripts/grid_model.py."""


def stage_of(s, stages, micro_steps):
    """What stage s does, in order: ("forward" or "backward", m), or a transfer (out, in, with) of "x3" and "d3", the stream and the
    gradient of micro-step 3, either of which may be None."""
    ahead = stages - 1 - s  # forwards before the first backward
    if s > 0:
        yield None, "x0", s - 1
    for turn in range(micro_steps + ahead):
        first = turn - ahead
        runs_forward, runs_backward = turn < micro_steps, first >= 0
        if runs_forward:
            yield "forward", turn
        if s + 1 < stages and (runs_forward or runs_backward):
            yield f"x{turn}" if runs_forward else None, f"d{first}" if runs_backward else None, s + 1
        if runs_backward:
            yield "backward", first
        out, received = f"d{first}" if runs_backward else None, f"x{turn + 1}" if turn + 1 < micro_steps else None
        if s > 0 and (out or received):
            yield out, received, s - 1


def seconds_of_schedule(forward, backward, transfer, micro_steps):
    """The time of a step whose stages take these times for a micro-step. A transfer begins when both stages are ready for it, and
    holds both until its end; two at the same time between the same stages are one exchange."""
    stages = len(forward)
    work = [list(stage_of(s, stages, micro_steps)) for s in range(stages)]
    time, at = [0.0] * stages, [0] * stages
    while any(at[s] < len(work[s]) for s in range(stages)):
        moved = False
        for s in range(stages):
            if at[s] == len(work[s]):
                continue
            item = work[s][at[s]]
            if len(item) == 2:
                time[s] += (forward if item[0] == "forward" else backward)[s]
                at[s], moved = at[s] + 1, True
                continue
            out, received, other = item
            if at[other] < len(work[other]) and work[other][at[other]] == (received, out, s):
                time[s] = time[other] = max(time[s], time[other]) + transfer
                at[s], at[other], moved = at[s] + 1, at[other] + 1, True
        assert moved, "a deadlock"
    return max(time)
