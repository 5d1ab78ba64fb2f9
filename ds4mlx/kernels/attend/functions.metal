// Where a query's rows lie. A place is a number over all rows of a step: first the step's own raw rows, then
// the slots of the ring, then the compressed rows. The same in a kernel of any number of queries.
static constant constexpr const int NOWHERE = -1;
// Stands for "no score yet": finite, so that no difference of two of them is NaN.
static constant constexpr const float LOWEST = -3e38f;

// A buffer may hold more than 2^31 numbers.
static inline ulong row_start(uint row) {
    return ulong(row) * D;
}

// Of the raw row of `position`, which is one of the step's own from `start` on.
static inline int raw_place(int position, int start, int count, int ring_rows) {
    return position < start ? count + position % ring_rows : position - start;
}

static inline const device ROW* row_at(
    int place, int count, int ring_rows, const device ROW* own, const device ROW* ring,
    const device ROW* compressed) {
    if (place < count) {
        return own + row_start(place);
    }
    if (place < count + ring_rows) {
        return ring + row_start(place - count);
    }
    return compressed + row_start(place - count - ring_rows);
}
