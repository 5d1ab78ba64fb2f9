// Where the row of a matrix begins that lies far beyond 2^32 bytes: the address alone, in two words.
const ulong place = ulong(row_of_blocks(weights, MATRIX, ROWS, ROW, BLOCKS) - weights);
words[0] = uint(place);
words[1] = uint(place >> 32);
