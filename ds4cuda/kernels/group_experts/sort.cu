// One block. A thread takes an expert at a time: it counts the expert's pairs, and then, once all counts are known,
// puts them in order. Groups of GROUP pairs of one expert follow each other in the order of the experts.
#include "warp.cuh"

extern "C" __global__ void sort_pairs(const int* chosen, int* order, int* group_expert, int* group_first,
                                      int* group_count, int pairs, int most_groups) {
    __shared__ int counts[EXPERTS];
    for (int expert = threadIdx.x; expert < EXPERTS; expert += THREADS) {
        int count = 0;
        for (int pair = 0; pair < pairs; pair++) {
            count += chosen[pair] == expert;
        }
        counts[expert] = count;
    }
    __syncthreads();
    for (int expert = threadIdx.x; expert < EXPERTS; expert += THREADS) {
        int place = 0, group = 0;
        for (int before = 0; before < expert; before++) {
            place += counts[before];
            group += (counts[before] + GROUP - 1) / GROUP;
        }
        for (int done = 0; done < counts[expert]; done += GROUP) {
            group_expert[group] = expert;
            group_first[group] = place + done;
            group_count[group] = min(GROUP, counts[expert] - done);
            group++;
        }
        if (expert == EXPERTS - 1) {
            for (; group < most_groups; group++) {
                group_count[group] = 0;
            }
        }
        for (int pair = 0; pair < pairs; pair++) {
            if (chosen[pair] == expert) {
                order[place++] = pair;
            }
        }
    }
}
