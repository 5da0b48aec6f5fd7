// What a stage supplies to the mains. Each stage's stage.cpp defines make_stage().
#pragma once

#include <memory>
#include <string>

#include "common/app/command_line.h"
#include "common/backend/backend.h"
#include "common/comm/communicator.h"
#include "common/train/gradient_sync.h"

namespace stagegpt {

// The machine a stage runs on.
struct Machine {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<GradientSync> sync;
  int threads = 1;          // of each rank
  std::string description;  // one line for the reader
};

class Stage {
 public:
  virtual ~Stage() = default;
  virtual int number() const = 0;
  // Declares the flags that only this stage has a use for.
  virtual void add_flags(CommandLine& command_line) = 0;
  // Called once, after the flags have been read.
  virtual Machine start() = 0;
};

// The first call of every main.
std::unique_ptr<Stage> make_stage();

}  // namespace stagegpt
