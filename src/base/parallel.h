// Short-lived threads for work on files: quantising, making synthetic tensors.
#pragma once

#include <functional>

namespace lily {

/// Runs `work` on up to `threads` threads at once, this one among them; returns when all have ended. The first
/// exception is thrown on. `work` takes pieces from a common list until it is empty, so it does not matter that a
/// system gives fewer threads than asked for.
void run_on_threads(int threads, const std::function<void()>& work);

}  // namespace lily
