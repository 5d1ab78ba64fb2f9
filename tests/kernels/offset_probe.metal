// One thread computes where a row begins, in two words.
const size_t offset = row_offset(place[0], place[1]);
words[0] = uint(offset);
words[1] = uint(offset >> 32);
