/* What is due when: a binary heap of times and slots, the earliest first. */
#include "kernel.h"

typedef struct { int64_t time, slot; } tm_due;

static void sift_down(tm_due *heap, int64_t count, int64_t at) {
    tm_due moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1].time < heap[child].time) child++;
        if (heap[child].time >= moved.time) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* Adds entries, for which there is room. */
void tm_due_push(tm_due *heap, int64_t *count, const int64_t *times, const int64_t *slots, int64_t more) {
    for (int64_t i = 0; i < more; i++) {
        int64_t at = (*count)++;
        for (int64_t above; at && heap[above = (at - 1) / 2].time > times[i]; at = above) heap[at] = heap[above];
        heap[at] = (tm_due){times[i], slots[i]};
    }
}

/* Takes out up to `most` entries that are due by `limit`, the earliest first; returns how many. */
int64_t tm_due_pop(tm_due *heap, int64_t *count, int64_t limit, int64_t most, int64_t *times, int64_t *slots) {
    int64_t taken = 0;
    while (taken < most && *count && heap[0].time <= limit) {
        times[taken] = heap[0].time;
        slots[taken++] = heap[0].slot;
        heap[0] = heap[--*count];
        if (*count) sift_down(heap, *count, 0);
    }
    return taken;
}
