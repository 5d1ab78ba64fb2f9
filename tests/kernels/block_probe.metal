// A thread expands one piece of a block and, of the first eight, multiplies one part with x [256].
const uint block = thread_position_in_grid.y;
const uint piece = thread_position_in_grid.x;
threadgroup uint2 table[MAGNITUDES];
copy_magnitudes(magnitudes, table, thread_position_in_threadgroup.x, threads_per_threadgroup.x);
device const uchar* from = blocks + block * BLOCK_BYTES;
// A piece is four vectors; the neighbours of these must stay what they are.
const vec<WEIGHT, 4> mark = vec<WEIGHT, 4>(2048.0f);
vec<WEIGHT, 4> room[6] = {mark, mark, mark, mark, mark, mark};
thread vec<WEIGHT, 4>* weights = room + 1;
expand_piece<WEIGHT>(from, piece, table, weights);
const bool kept = all(room[0] == mark) && all(room[5] == mark);
for (uint quad = 0; quad < 4; quad++) {
    for (uint column = 0; column < 4; column++) {
        expanded[256 * block + 16 * piece + 4 * quad + column] = kept ? weights[quad][column] : WEIGHT(NAN);
    }
}
if (piece < 8) {
    float4 values[8];
    float sums[4];
    for (uint octet = 0; octet < 4; octet++) {
        device const float4* octet_of_x = (device const float4*)(x + octet_start(piece, octet));
        values[2 * octet] = octet_of_x[0];
        values[2 * octet + 1] = octet_of_x[1];
        sums[octet] = dot(octet_of_x[0], float4(1)) + dot(octet_of_x[1], float4(1));
    }
    products[8 * block + piece] = multiply_part(from, piece, values, sums, table);
}
