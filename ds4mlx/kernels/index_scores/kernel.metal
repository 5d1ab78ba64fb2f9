// A threadgroup scores SIMDGROUPS * ROWS rows for TOKENS queries. A simdgroup keeps its ROWS rows in registers,
// transposed, all the time; the queries pass by in threadgroup memory, CHUNK heads of one token at a time.
constexpr int ROWS = 8 * FRAGMENTS;
constexpr int STEPS = WIDTH / 8;
constexpr int THREADS = 32 * SIMDGROUPS;
constexpr int CHUNK = 16;
constexpr int STRIDE = WIDTH + 8;  // spreads the rows of an 8 x 8 tile over the banks of the memory
constexpr int SLAB = 16;
threadgroup TILE staged[CHUNK * STRIDE];
threadgroup float shares[CHUNK];
threadgroup TILE slabs[SIMDGROUPS * ROWS * SLAB];
threadgroup float products[SIMDGROUPS * 8 * ROWS];

const uint thread_number = thread_index_in_threadgroup;
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
const uint group_first = threadgroup_position_in_grid.x * (SIMDGROUPS * ROWS);
const uint first_row = group_first + simdgroup * ROWS;
const uint first_token = threadgroup_position_in_grid.y * TOKENS;
const uint end_token = min(first_token + TOKENS, uint(numbers[1]));
const uint rows = numbers[3];
threadgroup TILE* own_slab = slabs + simdgroup * (ROWS * SLAB);
threadgroup float* own_products = products + simdgroup * (8 * ROWS);

simdgroup_matrix<TILE, 8, 8> keys[STEPS * FRAGMENTS];
#pragma clang loop unroll(full)
for (int slab = 0; slab < WIDTH / SLAB; slab++) {
    for (int place = lane; place < ROWS * SLAB; place += 32) {
        const uint row = first_row + place / SLAB;
        own_slab[place] = row < rows ? TILE(index_rows[row_offset(row, WIDTH) + slab * SLAB + place % SLAB]) : TILE(0);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    #pragma clang loop unroll(full)
    for (int tile = 0; tile < SLAB / 8 * FRAGMENTS; tile++) {
        const int step = tile / FRAGMENTS;
        const int eight = tile % FRAGMENTS;
        simdgroup_load(keys[slab * (SLAB / 8 * FRAGMENTS) + tile], own_slab + eight * 8 * SLAB + step * 8, SLAB,
                       ulong2(0), true);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
}

for (uint token = first_token; token < end_token; token++) {
    const uint visible = (uint(numbers[0]) + token + 1) / RATIO;
    float score = 0.0f;
    for (int chunk = 0; group_first < visible && chunk < HEADS; chunk += CHUNK) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int place = thread_number; place < CHUNK * WIDTH; place += THREADS) {
            const int head = place / WIDTH;
            const int channel = place % WIDTH;
            staged[head * STRIDE + channel] = chunk + head < HEADS
                ? TILE(queries[row_offset(token, HEADS * WIDTH) + (chunk + head) * WIDTH + channel]) : TILE(0);
        }
        if (thread_number < CHUNK) {
            const int head = chunk + thread_number;
            shares[thread_number] = head < HEADS ? compressor[row_offset(token, COLUMNS) + COLUMNS - HEADS + head] : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (first_row >= visible) {
            continue;
        }
        for (int head = 0; head < CHUNK; head += 8) {
            simdgroup_matrix<float, 8, 8> dots[FRAGMENTS];
            #pragma clang loop unroll(full)
            for (int eight = 0; eight < FRAGMENTS; eight++) {
                dots[eight] = make_filled_simdgroup_matrix<float, 8>(0.0f);
            }
            #pragma clang loop unroll(full)
            for (int step = 0; step < STEPS; step++) {
                simdgroup_matrix<TILE, 8, 8> query;
                simdgroup_load(query, staged + head * STRIDE + step * 8, STRIDE);
                #pragma clang loop unroll(full)
                for (int eight = 0; eight < FRAGMENTS; eight++) {
                    simdgroup_multiply_accumulate(
                        dots[eight], query, keys[step * FRAGMENTS + eight], dots[eight]);
                }
            }
            #pragma clang loop unroll(full)
            for (int eight = 0; eight < FRAGMENTS; eight++) {
                simdgroup_store(dots[eight], own_products + eight * 8, ROWS);
            }
            simdgroup_barrier(mem_flags::mem_threadgroup);
            if (lane < ROWS) {
                for (int next = 0; next < 8; next++) {
                    score = fma(max(own_products[next * ROWS + lane], 0.0f), shares[head + next], score);
                }
            }
            simdgroup_barrier(mem_flags::mem_threadgroup);
        }
    }
    const uint row = first_row + lane;
    if (lane < ROWS && row < rows) {
        scores[row_offset(token, rows) + row] = row < visible ? score : -INFINITY;
    }
}
