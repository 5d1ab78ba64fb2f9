// A threadgroup of 4 simdgroups computes TILE tokens x TILE outputs of one group, a simdgroup a quarter of it:
// 4 x 4 matrices of 8 x 8. DEPTH inputs of both factors are staged at a time, rows SPACED floats apart so that
// the rows of a matrix lie in different banks.
threadgroup float staged[2 * TILE * SPACED];
threadgroup float* const left = staged;
threadgroup float* const right = staged + TILE * SPACED;
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
const uint place = thread_index_in_threadgroup;
const uint count = x_shape[0];
const ulong group = threadgroup_position_in_grid.z;
const uint first_token = threadgroup_position_in_grid.y * TILE;
const uint first_output = threadgroup_position_in_grid.x * TILE;
simdgroup_float8x8 sums[16];
#pragma clang loop unroll(full)
for (int part = 0; part < 16; part++) {
    sums[part] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}
threadgroup const float* const own_left = left + simdgroup / 2 * 32 * SPACED;
threadgroup const float* const own_right = right + simdgroup % 2 * 32 * SPACED;
for (uint start = 0; start < INPUTS; start += DEPTH) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // A quad of threads takes a row; rows beyond the last are not stored, so any row will do for them.
    for (uint row = place / 4; row < TILE; row += 32) {
        const uint column = place % 4 * 4;
        const ulong token = min(first_token + row, count - 1);
        const ulong output = min(first_output + row, OUTPUTS - 1u);
        *(threadgroup float4*)(left + row * SPACED + column) =
            *(const device float4*)(x + (token * GROUPS + group) * INPUTS + start + column);
        *(threadgroup float4*)(right + row * SPACED + column) =
            float4(*(const device half4*)(weight + (group * OUTPUTS + output) * INPUTS + start + column));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    #pragma clang loop unroll(full)
    for (uint depth = 0; depth < DEPTH; depth += 8) {
        simdgroup_float8x8 tokens[4];
        simdgroup_float8x8 outputs[4];
        #pragma clang loop unroll(full)
        for (int i = 0; i < 4; i++) {
            simdgroup_load(tokens[i], own_left + i * 8 * SPACED + depth, SPACED);
            simdgroup_load(outputs[i], own_right + i * 8 * SPACED + depth, SPACED, ulong2(0, 0), true);
        }
        #pragma clang loop unroll(full)
        for (int part = 0; part < 16; part++) {
            simdgroup_multiply_accumulate(sums[part], tokens[part / 4], outputs[part % 4], sums[part]);
        }
    }
}
// The factors' room serves once more, 8 x 32 results of a simdgroup at a time: a matrix can only be stored whole.
threadgroup_barrier(mem_flags::mem_threadgroup);
threadgroup float* const results = staged + simdgroup * 256;
const uint output = first_output + simdgroup % 2 * 32 + lane;
#pragma clang loop unroll(full)
for (int i = 0; i < 4; i++) {
    #pragma clang loop unroll(full)
    for (int j = 0; j < 4; j++) {
        simdgroup_store(sums[4 * i + j], results + 8 * j, 32);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint row = 0; row < 8; row++) {
        const ulong token = first_token + simdgroup / 2 * 32 + i * 8 + row;
        if (token < count && output < OUTPUTS) {
            y[(token * GROUPS + group) * OUTPUTS + output] = results[row * 32 + lane];
        }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
}
