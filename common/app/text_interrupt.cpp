#include "common/app/text_interrupt.h"

namespace stagegpt {
namespace {

volatile std::sig_atomic_t interrupted = 0;

extern "C" void note_interrupt(int) { interrupted = 1; }

}  // namespace

TextInterrupt::TextInterrupt() {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_);
}

TextInterrupt::~TextInterrupt() { sigaction(SIGINT, &before_, nullptr); }

bool TextInterrupt::requested() { return interrupted != 0; }

}  // namespace stagegpt
