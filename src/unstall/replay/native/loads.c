/* The use of engines over time, and how ops share an engine. */

#include "engine.h"

static inline int
same_use(Use a, Use b)
{
    return a.shares == b.shares && a.filled == b.filled && a.touched == b.touched;
}

static inline int
is_idle(Use use)
{
    return !use.shares && !use.filled;
}

static void
remove_span(Load *load, int span)
{
    load->count--;
    const size_t rest = (size_t)(load->count - span);
    memmove(load->start + span, load->start + span + 1, rest * sizeof(int64_t));
    memmove(load->used + span, load->used + span + 1, rest * sizeof(Use));
}

static int
span_at(const Load *load, int64_t time)
{
    int span = load->count - 1;
    while (load->start[span] > time) {
        span--;
    }
    return span;
}

static void
join_first_two(Load *load)
{
    const Use a = load->used[0], b = load->used[1];
    load->used[0] = (Use){larger(a.shares, b.shares), larger(a.filled, b.filled), larger(a.touched, b.touched)};
    remove_span(load, 1);
}

/* Makes a span begin at `time`. */
static void
cut(Load *load, int64_t time)
{
    if (load->start[span_at(load, time)] == time) {
        return;
    }
    if (load->count == SPANS) {
        join_first_two(load);
    }
    const int span = span_at(load, time);
    const size_t rest = (size_t)(load->count - span - 1);
    memmove(load->start + span + 2, load->start + span + 1, rest * sizeof(int64_t));
    memmove(load->used + span + 2, load->used + span + 1, rest * sizeof(Use));
    load->start[span + 1] = time;
    load->used[span + 1] = load->used[span];
    load->count++;
}

static void
join_with_previous(Load *load, int span)
{
    if (span > 0 && same_use(load->used[span], load->used[span - 1])) {
        remove_span(load, span);
    }
}

void
occupy(Load *load, int64_t begun, int64_t done, Use more)
{
    if (begun == done) {
        return;
    }
    cut(load, begun);
    cut(load, done);
    const int first = span_at(load, begun), end = span_at(load, done);
    for (int span = first; span < end; span++) {
        Use *use = &load->used[span];
        use->shares = smaller(use->shares + more.shares, 2 * WHOLE);
        use->filled = smaller(use->filled + more.filled, WHOLE);
        use->touched = smaller(use->touched + more.touched, WHOLE);
    }
    join_with_previous(load, end);
    join_with_previous(load, first);
}

/* Returns when an idle engine can run an op without interruption. */
int64_t
when_idle(const Load *load, int64_t time, int64_t duration)
{
    for (int span = span_at(load, time); span < load->count - 1; span++) {
        if (!is_idle(load->used[span])) {
            time = load->start[span + 1];
        }
        else if (plus(time, duration) <= load->start[span + 1]) {
            break;
        }
    }
    return time;
}

/* Times stay below the largest int64: an op may take up to a thousand times as long beside others. */
static int64_t
sum_of(int64_t time, __int128 more)
{
    const __int128 sum = time + more;
    return sum < MOST_NS ? (int64_t)sum : (int64_t)MOST_NS;
}

static Use
use_of(Needs needs)
{
    const int64_t filled = (int64_t)needs.blocks * needs.size / WHOLE, most = WHOLE / needs.size;
    const int full = needs.blocks >= most * WHOLE || filled > WHOLE;
    return (Use){needs.share, full ? WHOLE : (int32_t)filled, smaller(needs.blocks ? needs.blocks : WHOLE, WHOLE)};
}

/* Returns whether a block finds room on a multiprocessor. */
static int
has_room(Needs needs, Use use)
{
    return use.touched < WHOLE || WHOLE - use.filled >= needs.size;
}

static int32_t
pace(Needs needs, Use use)
{
    if (!use.shares) {
        return WHOLE;
    }
    int32_t both = needs.share + use.shares;
    const int32_t mine = smaller(needs.blocks, WHOLE);
    if (use.touched < mine) {
        both = both * use.touched / mine;
    }
    const int32_t beside = both < 2 * WHOLE ? WHOLE * (2 * WHOLE - both) / (2 * WHOLE + both) : 0;
    const int crowded = needs.blocks && use_of(needs).filled < WHOLE && !has_room(needs, use);
    return crowded ? smaller(beside, CROWDED) : beside;
}

/* Returns when an op that takes a share of an engine can begin. */
int64_t
when_room(const Load *load, int64_t time, Needs needs)
{
    for (int span = load->count ? span_at(load, time) : 0; span < load->count && !pace(needs, load->used[span]); span++) {
        time = load->start[span + 1];
    }
    return time;
}

/* Runs an op that takes a share of an engine, from `time` on, in what is not in use. Beside others it is slower. Returns
   when it begins, and sets `done`. */
int64_t
run_beside(Load *load, int64_t time, int64_t duration, Needs needs, int64_t *done)
{
    int64_t begun = -1, from[SPANS], until[SPANS];
    int parts = 0;
    __int128 work = (__int128)duration * WHOLE;
    for (int span = span_at(load, time); work; span++) {
        const int32_t rate = pace(needs, load->used[span]);
        const int is_last = span == load->count - 1;
        if (rate) {
            begun = begun < 0 ? time : begun;
            const __int128 needed = (work + rate - 1) / rate;
            const int ends = is_last || needed <= load->start[span + 1] - time;
            from[parts] = time;
            until[parts++] = ends ? sum_of(time, needed) : load->start[span + 1];
            if (ends) {
                time = until[parts - 1];
                break;
            }
            work -= (__int128)(load->start[span + 1] - time) * rate;
        }
        time = load->start[span + 1];
    }
    const Use use = use_of(needs);
    for (int part = 0; part < parts; part++) {
        occupy(load, from[part], until[part], use);
    }
    *done = time;
    return begun < 0 ? time : begun;
}
