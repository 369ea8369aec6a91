/* Tuples of two sides that wait for partners with the same key, and the pairs that they make.
 *
 * The tuples of a side that have the same key are a chain, from the newest to the oldest. A tuple knows its
 * predecessor, and one further back that it jumps to, with the least and the greatest time of all that the jump
 * passes over, itself included. Jumps double as in a skew binary list: two neighbours that pass over equally
 * many become one. So a walk leaves out whatever cannot match in logarithmic time, in whichever order times came,
 * and nothing in a chain ever changes: who has its newest tuple has the chain as it was then.
 */
#include "table.h"

enum { INDEX_AHEAD = 24, SLOT_AHEAD = 16, CHAIN_AHEAD = 8 };

/* Tuples are named by number + 1, so that 0 means none. `key` is a slot; a tuple without one is in no chain. */
typedef struct {
    int64_t time, least, greatest;
    uint32_t previous, jump, key;
    uint32_t place;                    /* among the tuples of its batch, where somebody asks */
    uint8_t rank, is_matched, is_gone; /* a jump of rank r passes over 2^(r+1) - 1 tuples */
    uint8_t unused[5];
} tm_tuple;

/* The state of a key: its newest tuple of each side. */
typedef struct { uint32_t newest[2]; } tm_chains;

/* A left and a right tuple match if the right one is at most `before` earlier and `after` later. No more than
 * `most` pairs are wanted, and of each tuple only those with the newest `most_left` or `most_right` of the other
 * side. With `adds` tuples that arrive wait from then on; with `only_unmatched` they are not paired with those
 * that have matched. */
typedef struct {
    tm_tuple *left, *right;
    int64_t before, after, most, adds, only_unmatched, most_left, most_right;
} tm_join;

/* Tuples in the order in which they count: their sides, times, the times by which they look for partners, keys, and
 * numbers on their side if they wait. */
typedef struct {
    const uint8_t *side;
    const int64_t *time, *asks, *key, *number;
    int64_t count;
} tm_arrivals;

static inline tm_chains *chains_of(const tm_table *keys, int64_t key) {
    return (tm_chains *)slot_state(keys, slot_at(keys, key));
}

static inline tm_tuple *tuples_of(const tm_join *join, int side) {
    return side ? join->right : join->left;
}

/* The slots of the keys of some rows, 0 for keys with nulls and, without `adds`, for those that nobody has.
 * Stops before a row there is no room for and returns its number. */
int64_t tm_join_keys(tm_table *t, const tm_keys *keys, const uint8_t *has_null, int32_t adds, int64_t from,
                     int64_t *slots, int32_t *need) {
    *need = 0;
    for (int64_t row = from; row < keys->count; row++) {
        if (row + INDEX_AHEAD < keys->count) {
            prefetch_index(t, keys->hashes[row + INDEX_AHEAD]);
            prefetch_found(t, keys->hashes[row + SLOT_AHEAD]);
        }
        slots[row] = NO_SLOT;
        if (has_null && has_null[row]) continue;
        uint64_t hash = keys->hashes[row];
        int64_t at = index_find(t, hash, keys, row, 0, 0, &slots[row]);
        if (slots[row] || !adds) continue;
        if ((*need = table_room(t, keys, row, 1))) return row;
        tm_slot *s = table_new_slot(t, hash, keys, row, 0, &slots[row]);
        index_set(t, at, hash, slots[row]);
        t->header->indexed++;
        s->opened = 0;
        *(tm_chains *)slot_state(t, s) = (tm_chains){{0, 0}};
    }
    return keys->count;
}

static inline void link_tuple(tm_table *keys, tm_tuple *tuples, int side, int64_t number) {
    tm_tuple *x = &tuples[number];
    x->least = x->greatest = x->time;
    x->previous = x->jump = 0;
    x->rank = 0;
    if (!x->key) return;
    uint32_t *newest = &chains_of(keys, x->key)->newest[side];
    x->previous = x->jump = *newest;
    *newest = (uint32_t)(number + 1);
    if (!x->previous) return;
    const tm_tuple *p = &tuples[x->previous - 1];
    if (!p->jump) return;
    const tm_tuple *q = &tuples[p->jump - 1];
    if (p->rank != q->rank) return;
    x->rank = p->rank + 1;
    x->jump = q->jump;
    if (p->least < x->least) x->least = p->least;
    if (q->least < x->least) x->least = q->least;
    if (p->greatest > x->greatest) x->greatest = p->greatest;
    if (q->greatest > x->greatest) x->greatest = q->greatest;
}

/* Tuples of a chain that a tuple of this side and time matches; returns how many. They are written from the end
 * of `found` backward, so that the oldest comes first; only counted if it is NULL. */
static inline int64_t partners(const tm_join *join, int side, int64_t time, uint32_t newest, int64_t *found,
                               int64_t *steps) {
    const tm_tuple *others = tuples_of(join, !side);
    int64_t least = time - (side ? join->after : join->before);
    int64_t greatest = time + (side ? join->before : join->after);
    int64_t count = 0, most = side ? join->most_left : join->most_right;
    for (uint32_t at = newest; at && count < most; ) {
        const tm_tuple *x = &others[at - 1];
        (*steps)++;
        if (x->greatest < least || x->least > greatest) { at = x->jump; continue; }
        if (x->time >= least && x->time <= greatest && !(join->only_unmatched && x->is_matched)) {
            if (found) *--found = at - 1;
            count++;
        }
        at = x->previous;
    }
    return count;
}

PREFETCHING prefetch_chain(const tm_table *keys, const tm_join *join, int64_t key, int side) {
    if (!key) return;
    uint32_t newest = chains_of(keys, key)->newest[!side];
    if (newest) __builtin_prefetch(&tuples_of(join, !side)[newest - 1]);
}

/* Counts the partners of each tuple among those that wait when it arrives, and notes the newest of its key then;
 * returns how many pairs there are, and stops when these are too many. `steps` is how many tuples were looked at. */
int64_t tm_join_count(tm_table *keys, const tm_join *join, const tm_arrivals *arrivals, uint32_t *newest,
                      int64_t *counts, int64_t *steps) {
    int64_t total = 0;
    *steps = 0;
    for (int64_t i = 0; i < arrivals->count && total <= join->most; i++) {
        int side = arrivals->side[i];
        int64_t key = arrivals->key[i];
        if (i + SLOT_AHEAD < arrivals->count) {
            if (arrivals->key[i + SLOT_AHEAD]) prefetch_slot(keys, arrivals->key[i + SLOT_AHEAD]);
            prefetch_chain(keys, join, arrivals->key[i + CHAIN_AHEAD], arrivals->side[i + CHAIN_AHEAD]);
        }
        newest[i] = key ? chains_of(keys, key)->newest[!side] : 0;
        total += counts[i] = partners(join, side, arrivals->asks[i], newest[i], NULL, steps);
        if (!join->adds) continue;
        tm_tuple *tuples = tuples_of(join, side), *x = &tuples[arrivals->number[i]];
        *x = (tm_tuple){.time = arrivals->time[i], .key = (uint32_t)key};
        link_tuple(keys, tuples, side, arrivals->number[i]);
    }
    return total;
}

/* The pairs that were counted for some of the tuples: which tuple has arrived, and its partner's number. */
void tm_join_pairs(const tm_join *join, const tm_arrivals *arrivals, const uint32_t *newest, const int64_t *counts,
                   int64_t from, int64_t upto, int64_t *arrival, int64_t *partner) {
    int64_t end = 0, steps = 0;
    for (int64_t i = from; i < upto; i++) {
        if (!counts[i]) continue;
        for (int64_t k = 0; k < counts[i]; k++) arrival[end + k] = i;
        end += counts[i];
        partners(join, arrivals->side[i], arrivals->asks[i], newest[i], partner + end, &steps);
    }
}

/* For left tuples that wait, the number of the latest right one that matches, the newest of those with the same
 * time; -1 where none does. Returns how many tuples were looked at. */
int64_t tm_join_nearest(const tm_table *keys, const tm_join *join, const int64_t *numbers, int64_t count,
                        int64_t *nearest) {
    int64_t steps = 0;
    for (int64_t i = 0; i < count; i++) {
        const tm_tuple *asked = &join->left[numbers[i]];
        int64_t least = asked->time - join->before, greatest = asked->time + join->after;
        nearest[i] = -1;
        uint32_t at = asked->key ? chains_of(keys, asked->key)->newest[1] : 0;
        while (at) {
            const tm_tuple *x = &join->right[at - 1];
            steps++;
            if (x->greatest < least || x->least > greatest) { at = x->jump; continue; }
            if (x->time >= least && x->time <= greatest) {
                nearest[i] = at - 1;
                least = x->time + 1;               /* those further back came before it */
            }
            at = x->previous;
        }
    }
    return steps;
}

/* Tuples of a side that have not left though `most` newer ones of their key are there, for the keys whose newest
 * tuple is among the numbers; returns how many. What is behind one that has left has left, too. */
int64_t tm_join_surplus(const tm_table *keys, const tm_tuple *tuples, int32_t side, int64_t most,
                        const int64_t *numbers, int64_t count, int64_t *found) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i + SLOT_AHEAD < count) __builtin_prefetch(&tuples[numbers[i + SLOT_AHEAD]]);
        uint32_t at = (uint32_t)(numbers[i] + 1), key = tuples[at - 1].key;
        if (!key || chains_of(keys, key)->newest[side] != at) continue;
        for (int64_t passed = 0; at && passed < most; ) {
            const tm_tuple *x = &tuples[at - 1];
            int64_t jumped = ((int64_t)2 << x->rank) - 1;
            at = passed + jumped <= most ? x->jump : x->previous;
            passed += passed + jumped <= most ? jumped : 1;
        }
        for (; at && !tuples[at - 1].is_gone; at = tuples[at - 1].previous) found[total++] = at - 1;
    }
    return total;
}

/* Puts tuples that have time and key into their chains, the oldest first. */
void tm_join_link(tm_table *keys, tm_tuple *tuples, int32_t side, int64_t from, int64_t upto) {
    for (int64_t number = from; number < upto; number++) {
        if (number + SLOT_AHEAD < upto && tuples[number + SLOT_AHEAD].key)
            prefetch_slot(keys, tuples[number + SLOT_AHEAD].key);
        link_tuple(keys, tuples, side, number);
    }
}

/* Empties the chains of a side, of all keys that are named. */
void tm_join_unlink(tm_table *keys, int32_t side, const uint32_t *named, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (named[i]) chains_of(keys, named[i])->newest[side] = 0;
}

/* Gives back the slots of the keys that have no tuple on either side any more. */
void tm_join_release(tm_table *keys, const uint32_t *named, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (!named[i] || slot_at(keys, named[i])->opened == FREED) continue;
        const tm_chains *chains = chains_of(keys, named[i]);
        if (!chains->newest[0] && !chains->newest[1]) table_free_slot(keys, named[i]);
    }
}
