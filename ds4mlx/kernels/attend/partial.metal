// A simdgroup takes EACH heads of one token over one slice of the token's rows. A lane holds PARTS runs of PART
// neighbouring channels: of the queries, of the sums and of the row at hand. Scores of 32 rows are gathered one
// row a lane, so that the softmax of 32 rows costs one exponential.
using Part = vec<float, PART>;
using RowPart = vec<ROW, PART>;
const int lane = int(thread_index_in_simdgroup);
const int first_head = int(thread_position_in_grid.x) / 32 * EACH;
const int slice = int(threadgroup_position_in_grid.y);
const int slices = int(threadgroups_per_grid.y);
const int token = int(threadgroup_position_in_grid.z);

const int start = numbers[0];
const int count = numbers[1];
const int ring_rows = numbers[2];
const int position = start + token;
const int raw_rows = min(position + 1, WINDOW);
const int visible = RATIO > 0 ? (position + 1) / max(RATIO, 1) : 0;
const int rows = raw_rows + (TOP_K > 0 ? TOP_K : visible);

const int tiles = (rows + 31) / 32;
const int first_tile = tiles * slice / slices;
const int end_tile = tiles * (slice + 1) / slices;

Part query[EACH][PARTS];
Part sum[EACH][PARTS];
float largest[EACH];
float total[EACH];
#pragma clang loop unroll(full)
for (int head = 0; head < EACH; ++head) {
    const ulong from = row_start(token * HEADS + first_head + head);
    float squares = 0.0f;
    #pragma clang loop unroll(full)
    for (int part = 0; part < PARTS; ++part) {
        const int channel = (part * 32 + lane) * PART;
        const Part values = *(const device Part*)(queries + from + channel);
        squares += dot(values, values);
        query[head][part] = values;
        sum[head][part] = Part(0.0f);
    }
    const float scale = precise::rsqrt(simd_sum(squares) / float(D) + EPSILON) * SCALE;
    #pragma clang loop unroll(full)
    for (int part = 0; part < PARTS; ++part) {
        const int channel = (part * 32 + lane) * PART;
        const Part by = *(const device Part*)(rotation + row_start(token) + channel);
        const Part values = query[head][part] * scale;
        #pragma clang loop unroll(full)
        for (int pair = 0; pair < PART; pair += 2) {
            const float2 turned = turn(float2(values[pair], values[pair + 1]), float2(by[pair], by[pair + 1]));
            query[head][part][pair] = turned.x;
            query[head][part][pair + 1] = turned.y;
        }
    }
    largest[head] = LOWEST;
    total[head] = 0.0f;
}

for (int tile = first_tile; tile < end_tile; ++tile) {
    const int index = tile * 32 + lane;
    int place = NOWHERE;
    if (index < raw_rows) {
        place = raw_place(position - raw_rows + 1 + index, start, count, ring_rows);
    } else if (index < rows) {
        const int row = TOP_K > 0 ? chosen[ulong(token) * TOP_K + index - raw_rows] : index - raw_rows;
        place = row < visible ? count + ring_rows + row : NOWHERE;
    }
    const int here = min(32, rows - tile * 32);

    float score[EACH];
    #pragma clang loop unroll(full)
    for (int head = 0; head < EACH; ++head) {
        score[head] = LOWEST;
    }
    for (int row = 0; row < here; ++row) {
        const int at = simd_shuffle(place, ushort(row));
        if (at == NOWHERE) {
            continue;
        }
        const device ROW* from = row_at(at, count, ring_rows, own, ring, compressed) + lane * PART;
        float dots[EACH];
        #pragma clang loop unroll(full)
        for (int head = 0; head < EACH; ++head) {
            dots[head] = 0.0f;
        }
        #pragma clang loop unroll(full)
        for (int part = 0; part < PARTS; ++part) {
            const Part values = Part(*(const device RowPart*)(from + part * 32 * PART));
            #pragma clang loop unroll(full)
            for (int head = 0; head < EACH; ++head) {
                dots[head] += dot(query[head][part], values);
            }
        }
        #pragma clang loop unroll(full)
        for (int head = 0; head < EACH; ++head) {
            const float whole = simd_sum(dots[head]);
            score[head] = lane == row ? whole : score[head];
        }
    }

    float weight[EACH];
    #pragma clang loop unroll(full)
    for (int head = 0; head < EACH; ++head) {
        const float before = largest[head];
        largest[head] = max(before, simd_max(score[head]));
        // 0 where there is no row; or 1 in a slice without any row, which weighs nothing itself.
        weight[head] = precise::exp(score[head] - largest[head]);
        const float shrink = precise::exp(before - largest[head]);
        total[head] = total[head] * shrink + simd_sum(weight[head]);
        #pragma clang loop unroll(full)
        for (int part = 0; part < PARTS; ++part) {
            sum[head][part] *= shrink;
        }
    }
    for (int row = 0; row < here; ++row) {
        const int at = simd_shuffle(place, ushort(row));
        if (at == NOWHERE) {
            continue;
        }
        const device ROW* from = row_at(at, count, ring_rows, own, ring, compressed) + lane * PART;
        float shares[EACH];
        #pragma clang loop unroll(full)
        for (int head = 0; head < EACH; ++head) {
            shares[head] = simd_shuffle(weight[head], ushort(row));
        }
        #pragma clang loop unroll(full)
        for (int part = 0; part < PARTS; ++part) {
            const Part values = Part(*(const device RowPart*)(from + part * 32 * PART));
            #pragma clang loop unroll(full)
            for (int head = 0; head < EACH; ++head) {
                sum[head][part] += values * shares[head];
            }
        }
    }
}

#pragma clang loop unroll(full)
for (int head = 0; head < EACH; ++head) {
    const int out = (token * slices + slice) * HEADS + first_head + head;
    #pragma clang loop unroll(full)
    for (int part = 0; part < PARTS; ++part) {
        *(device Part*)(sums + row_start(out) + (part * 32 + lane) * PART) = sum[head][part];
    }
    if (lane == 0) {
        stats[out * 2] = largest[head];
        stats[out * 2 + 1] = total[head];
    }
}
