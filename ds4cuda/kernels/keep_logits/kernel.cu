// A thread for each logit.
extern "C" __global__ void keep_logits(const float* logits, const int* position, float* places, int vocabulary) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < vocabulary) {
        places[(long long)((*position + 1) & 1) * vocabulary + at] = logits[at];
    }
}
