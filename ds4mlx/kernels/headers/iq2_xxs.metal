// IQ2_XXS: 256 weights in 66 bytes: half d; then 8 parts of 32 weights, each one word that names four octets
// of the table of magnitudes and one word of 4 x 7 sign bits and a 4-bit scale. Spec: model 3.
//
// The headers of all block types have the same names, so one kernel text serves every type.
//   part: the 32 weights of a block that a lane multiplies at a time, four octets of neighbours (*_part.metal)
//   piece: 16 weights in the order of columns, for filling tiles (*_piece.metal)
//   magnitudes: the table of iq2_magnitudes (ds4mlx/kernels/block_types.py), which `copy_magnitudes` brings into
//   threadgroup memory; the other types have none
static constant constexpr const int BLOCK_BYTES = 66;
static constant constexpr const int MAGNITUDES = 256;

// All threads of the group must take part, each with its `index` of `threads`.
static inline void copy_magnitudes(device const uint* table, threadgroup uint2* magnitudes, uint index,
                                   uint threads) {
    for (uint entry = index; entry < MAGNITUDES; entry += threads) {
        magnitudes[entry] = uint2(table[2 * entry], table[2 * entry + 1]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Blocks are aligned to two bytes only.
static inline uint2 iq2_words(device const uchar* block, uint part) {
    device const ushort* words = (device const ushort*)block + 1 + 4 * part;
    return uint2(as_type<uint>(ushort2(words[0], words[1])), as_type<uint>(ushort2(words[2], words[3])));
}

static inline float iq2_step(device const uchar* block, uint word) {
    const float step = *(device const half*)block;
    return step * (0.5f + (word >> 28)) * 0.25f;
}

// The eighth sign makes the number of negative weights even.
static inline uint iq2_signs(uint word, uint octet) {
    const uint seven = (word >> (7 * octet)) & 127u;
    return seven | (popcount(seven) & 1u) << 7;
}

static inline float4 iq2_signed(uint magnitudes, uint signs) {
    const float4 values = float4(as_type<uchar4>(magnitudes));
    return select(values, -values, (uint4(signs) & uint4(1, 2, 4, 8)) != uint4(0));
}
