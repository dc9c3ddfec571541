/* How often marks are put. A mark takes the host a third of a launch, and the device as long as a short kernel. So marks
   get a share of the time. If the device has caught up, the host is what the program waits for: then marks are spread
   evenly. If the device is behind, the host has time, and marks may come one after the other; what counts then is what
   they take the device. */

#include "_ring.h"

/* In ns. ON_DEVICE is measured: benchmarks/blame.py, a chain of elementwise operators on an H100 and an H200. */
enum { FIRST_COST = 3000, LEAST_COST = 500, MOST_COST = 20000, ON_DEVICE = 2500, MOST_SAVED = 1000000 };

static struct {
    uint64_t cost, share, saved; /* cost and saved: ns. share: millionths of the time */
    uint64_t seen, put;          /* when it was asked last, and when the last mark was put */
    uint32_t first;
    int is_fixed;
} budget;

void
budget_start(uint32_t share, uint32_t first, uint32_t cost)
{
    budget.share = share;
    budget.first = first;
    budget.cost = cost ? cost : FIRST_COST;
    budget.is_fixed = cost != 0;
    budget.saved = share ? MOST_SAVED : 0;
    budget.seen = budget.put = 0;
}

int
budget_allows(uint64_t time, int is_behind)
{
    if (budget.first) {
        budget.first--;
        return 1;
    }
    if (time > budget.seen) {
        uint64_t passed = budget.seen ? time - budget.seen : 0;
        uint64_t more = passed < UINT32_MAX ? passed * budget.share / 1000000 : MOST_SAVED;
        budget.saved = budget.saved + more < MOST_SAVED ? budget.saved + more : MOST_SAVED;
        budget.seen = time;
    }
    int is_soon = time < budget.put || (time - budget.put) * budget.share < budget.cost * 1000000;
    uint64_t cost = is_behind && !budget.is_fixed && budget.cost < ON_DEVICE ? ON_DEVICE : budget.cost;
    if (budget.saved < cost || (is_soon && !is_behind)) {
        return 0;
    }
    budget.saved -= cost;
    budget.put = time;
    return 1;
}

void
budget_took(uint64_t took)
{
    if (!budget.is_fixed) {
        took = took < 4 * budget.cost ? took : 4 * budget.cost;
        budget.cost = (7 * budget.cost + took) / 8;
        budget.cost = budget.cost < LEAST_COST ? LEAST_COST : budget.cost > MOST_COST ? MOST_COST : budget.cost;
    }
}
