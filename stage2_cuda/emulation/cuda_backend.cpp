// The same source, for the emulator.
#include "stage2_cuda/cuda_backend.cu"
