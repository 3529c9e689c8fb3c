// What memlab-top asks processes to do, each request in a thread of its own: a process that steps
// aside answers when its memory has left, which may take long, and is to be called back meanwhile.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tools/top/view_state.hpp"

namespace memlab::tools {

/// Thread-safety: none.
class Errands {
  public:
    /// `tell` gets each outcome, one line, in another thread.
    explicit Errands(std::function<void(std::string outcome)> tell);
    /// Waits for no answer; `tell` is not called any more.
    ~Errands();
    Errands(const Errands&) = delete;
    Errands& operator=(const Errands&) = delete;

    /// Nothing where the same is under way.
    void begin(const KeyCommand& command);

  private:
    struct Shared;

    std::shared_ptr<Shared> shared_;
};

}  // namespace memlab::tools
