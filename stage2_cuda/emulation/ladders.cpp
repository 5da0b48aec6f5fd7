// The same source, for the emulator.
#include "stage2_cuda/ladders.cu"
