// What every block type's header for integer products gives: 32 weights of a block as signed bytes, four in a word in
// their order, and what these stand for. Weight w of half h = w / 16 is steps[h] * step * code - minima[h] * least.
// Follows dot8.cuh. The headers have the same names, so one kernel text serves every type:
//   coded_part: the part of a block whose number is given
//   MAGNITUDES: entries of the table that the type needs in shared memory, at least 1
struct CodedPart {
    u32 codes[8];
    int steps[2], minima[2];
    float step, least;
};
