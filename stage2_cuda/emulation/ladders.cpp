// ladders.cu, compiled for the emulator.
#include "stage2_cuda/ladders.cu"
