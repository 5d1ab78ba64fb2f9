// Products on tensor cores, in NVIDIA's words: a warp multiplies 16 rows with 8 columns, of signed bytes or of binary16
// numbers. A build for another family of GPUs replaces this header. Lane l holds of each 16 bytes those from 4 (l % 4)
// on, of rows l / 4 and l / 4 + 8 and of column l / 4; sums 0 and 1 are of its first row, 2 and 3 of its second, with
// columns 2 (l % 4) and the next. All lanes of a warp take part in each function. Follows warp.cuh.

// Four matrices of 8 x 16 bytes from shared memory: the lane names row l % 8 of matrix l / 8, aligned to 16 bytes, and
// gets its bytes of each matrix.
__device__ __forceinline__ void load_fragments(const void* row, u32* words) {
    const u32 address = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address));
}

// Rows and columns of 32 bytes: `rows` are words of first and second row for the first 16 bytes, then for the others.
__device__ __forceinline__ void multiply_32(int* sums, const u32* rows, const u32* columns) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(columns[0]), "r"(columns[1]));
}

// Rows and columns of 16 bytes.
__device__ __forceinline__ void multiply_16(int* sums, const u32* rows, u32 column) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(rows[0]), "r"(rows[1]), "r"(column));
}

// Rows and columns of 16 binary16 numbers, which are 32 bytes; sums are floats.
__device__ __forceinline__ void multiply_halves(float* sums, const u32* rows, const u32* columns) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(columns[0]), "r"(columns[1]));
}

// As load_fragments, of matrices of 8 x 8 binary16 numbers each turned over: columns that stand side by side.
__device__ __forceinline__ void load_turned(const void* row, u32* words) {
    const u32 address = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address));
}
