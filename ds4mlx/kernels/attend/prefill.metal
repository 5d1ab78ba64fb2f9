// A threadgroup of 8 simdgroups takes 32 heads of one token over all of the token's rows, 16 at a time. A
// simdgroup holds, for 16 of the heads (its side) and a quarter of the channels, queries and sums as 8x8
// matrices in registers; rows lie in threadgroup memory, where all simdgroups read them twice.
constexpr int TILE = 16;                  // rows at a time
constexpr int GROUP_HEADS = 32;
constexpr int QUARTER = D / 4;            // channels of a simdgroup
constexpr int BLOCKS = QUARTER / 8;
constexpr int STRIDE = D + 8;             // keeps 8 rows' equal channels in different banks

threadgroup half rows_here[TILE * STRIDE];
threadgroup float parts[4 * GROUP_HEADS * TILE];
threadgroup half weights[GROUP_HEADS * TILE];
threadgroup float diagonals[4 * 64];
threadgroup float shrinks[GROUP_HEADS];
threadgroup int places[TILE];

const int thread_of_group = int(thread_index_in_threadgroup);
const int lane = int(thread_index_in_simdgroup);
const int simdgroup = int(simdgroup_index_in_threadgroup);
const int side = simdgroup / 4;
const int quarter = simdgroup % 4;
const int first_head = int(threadgroup_position_in_grid.x) * GROUP_HEADS;
const int token = int(threadgroup_position_in_grid.y);

const int start = numbers[0];
const int count = numbers[1];
const int ring_rows = numbers[2];
const int position = start + token;
const int raw_rows = min(position + 1, WINDOW);
const int visible = RATIO > 0 ? (position + 1) / max(RATIO, 1) : 0;
const int rows = raw_rows + (TOP_K > 0 ? TOP_K : visible);

// Queries: norm, turn, round, one side after the other through the rows' place.
simdgroup_half8x8 query[2][BLOCKS];
for (int staged = 0; staged < 2; ++staged) {
    for (int each = 0; each < 2; ++each) {
        const int local = simdgroup * 2 + each;
        const int head = first_head + staged * 16 + local;
        float2 pairs[D / 64];
        float squares = 0.0f;
        #pragma clang loop unroll(full)
        for (int part = 0; part < D / 64; ++part) {
            const int channel = (part * 32 + lane) * 2;
            pairs[part] = head < HEADS
                ? *(const device float2*)(queries + row_start(token * HEADS + head) + channel)
                : float2(0.0f);
            squares += dot(pairs[part], pairs[part]);
        }
        const float scale = precise::rsqrt(simd_sum(squares) / float(D) + EPSILON);
        #pragma clang loop unroll(full)
        for (int part = 0; part < D / 64; ++part) {
            const int channel = (part * 32 + lane) * 2;
            const float2 by = *(const device float2*)(rotation + row_start(token) + channel);
            *(threadgroup half2*)(rows_here + local * STRIDE + channel) = half2(turn(pairs[part] * scale, by));
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (side == staged) {
        #pragma clang loop unroll(full)
        for (int eight = 0; eight < 2; ++eight) {
            #pragma clang loop unroll(full)
            for (int block = 0; block < BLOCKS; ++block) {
                simdgroup_load(query[eight][block],
                    rows_here + eight * 8 * STRIDE + quarter * QUARTER + block * 8, STRIDE);
            }
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

simdgroup_float8x8 sum[2][BLOCKS];
#pragma clang loop unroll(full)
for (int eight = 0; eight < 2; ++eight) {
    #pragma clang loop unroll(full)
    for (int block = 0; block < BLOCKS; ++block) {
        sum[eight][block] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
}
// In the softmax 8 neighbouring threads share a head, each with 2 of the 16 rows.
const int my_head = thread_of_group / 8;
const int my_row = thread_of_group % 8 * 2;
float largest = LOWEST;
float total = 0.0f;
diagonals[thread_of_group] = 0.0f;

for (int begin = 0; begin < rows; begin += TILE) {
    {
        const int local = thread_of_group / 16;
        const int part = thread_of_group % 16;
        const int index = begin + local;
        int place = NOWHERE;
        if (index < raw_rows) {
            place = raw_place(position - raw_rows + 1 + index, start, count, ring_rows);
        } else if (index < rows) {
            const int row = TOP_K > 0 ? chosen[ulong(token) * TOP_K + index - raw_rows] : index - raw_rows;
            place = row < visible ? count + ring_rows + row : NOWHERE;
        }
        if (part == 0) {
            places[local] = place;
        }
        // Any row of numbers does for a place that is nowhere: its weight is 0.
        const device ROW* from = row_at(max(place, 0), count, ring_rows, own, ring, compressed);
        for (int step = 0; step < D / 64; ++step) {
            const int channel = (step * 16 + part) * 4;
            *(threadgroup half4*)(rows_here + local * STRIDE + channel) = *(const device half4*)(from + channel);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // Scores over a quarter of the channels.
    for (int rows8 = 0; rows8 < TILE / 8; ++rows8) {
        simdgroup_float8x8 score[2];
        score[0] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        score[1] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        #pragma clang loop unroll(full)
        for (int block = 0; block < BLOCKS; ++block) {
            simdgroup_half8x8 keys;
            simdgroup_load(keys, rows_here + rows8 * 8 * STRIDE + quarter * QUARTER + block * 8, STRIDE,
                ulong2(0, 0), true);
            #pragma clang loop unroll(full)
            for (int eight = 0; eight < 2; ++eight) {
                simdgroup_multiply_accumulate(score[eight], query[eight][block], keys, score[eight]);
            }
        }
        #pragma clang loop unroll(full)
        for (int eight = 0; eight < 2; ++eight) {
            simdgroup_store(score[eight],
                parts + (quarter * GROUP_HEADS + side * 16 + eight * 8) * TILE + rows8 * 8, TILE);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    {
        float score[2];
        float tile_largest = largest;
        for (int which = 0; which < 2; ++which) {
            float whole = 0.0f;
            for (int part = 0; part < 4; ++part) {
                whole += parts[(part * GROUP_HEADS + my_head) * TILE + my_row + which];
            }
            score[which] = places[my_row + which] == NOWHERE ? LOWEST : whole * SCALE;
            tile_largest = max(tile_largest, score[which]);
        }
        for (ushort apart = 4; apart > 0; apart /= 2) {
            tile_largest = max(tile_largest, simd_shuffle_xor(tile_largest, apart));
        }
        const float shrink = fast::exp(largest - tile_largest);
        largest = tile_largest;
        float tile_total = 0.0f;
        for (int which = 0; which < 2; ++which) {
            const half weight = half(fast::exp(score[which] - largest));
            weights[my_head * TILE + my_row + which] = weight;
            tile_total += float(weight);
        }
        for (ushort apart = 4; apart > 0; apart /= 2) {
            tile_total += simd_shuffle_xor(tile_total, apart);
        }
        total = total * shrink + tile_total;
        if (thread_of_group % 8 == 0) {
            shrinks[my_head] = shrink;
            diagonals[my_head / 8 * 64 + my_head % 8 * 9] = shrink;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // A larger score is rare after the first rows: most sums need no shrinking.
    if (!simd_all(shrinks[side * 16 + lane % 16] == 1.0f)) {
        #pragma clang loop unroll(full)
        for (int eight = 0; eight < 2; ++eight) {
            simdgroup_float8x8 by;
            simdgroup_load(by, diagonals + (side * 2 + eight) * 64, 8);
            #pragma clang loop unroll(full)
            for (int block = 0; block < BLOCKS; ++block) {
                simdgroup_multiply(sum[eight][block], by, sum[eight][block]);
            }
        }
    }
    for (int rows8 = 0; rows8 < TILE / 8; ++rows8) {
        simdgroup_half8x8 share[2];
        #pragma clang loop unroll(full)
        for (int eight = 0; eight < 2; ++eight) {
            simdgroup_load(share[eight], weights + (side * 16 + eight * 8) * TILE + rows8 * 8, TILE);
        }
        #pragma clang loop unroll(full)
        for (int block = 0; block < BLOCKS; ++block) {
            simdgroup_half8x8 values;
            simdgroup_load(values, rows_here + rows8 * 8 * STRIDE + quarter * QUARTER + block * 8, STRIDE);
            #pragma clang loop unroll(full)
            for (int eight = 0; eight < 2; ++eight) {
                simdgroup_multiply_accumulate(sum[eight][block], share[eight], values, sum[eight][block]);
            }
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

// The sink joins; then each 8x8 block of sums goes through threadgroup memory, scaled and turned back.
if (thread_of_group % 8 == 0 && first_head + my_head < HEADS) {
    const float sink = sinks[first_head + my_head];
    const float whole = max(largest, sink);
    const float shrink = precise::exp(largest - whole);
    shrinks[my_head] = shrink / (total * shrink + precise::exp(sink - whole));
}
threadgroup_barrier(mem_flags::mem_threadgroup);
threadgroup float* block_here = parts + simdgroup * 64;
#pragma clang loop unroll(full)
for (int eight = 0; eight < 2; ++eight) {
    const int local = side * 16 + eight * 8 + lane / 4;
    #pragma clang loop unroll(full)
    for (int block = 0; block < BLOCKS; ++block) {
        const int channel = quarter * QUARTER + block * 8 + lane % 4 * 2;
        simdgroup_store(sum[eight][block], block_here, 8);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        if (first_head + local < HEADS) {
            const float2 by = *(const device float2*)(rotation + row_start(token) + channel);
            const float2 pair = *(threadgroup float2*)(block_here + lane * 2) * shrinks[local];
            *(device float2*)(mixed + row_start(token * HEADS + first_head + local) + channel) =
                turn_back(pair, by);
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
}
