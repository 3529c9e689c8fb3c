// For calls that take or release device memory without a size in their arguments: measured for the
// ledger. The program gets the driver's own answer even if the measurement fails.
#pragma once

#include "interpose/hooks/hook.hpp"
#include "interpose/memory/device_memory.hpp"

namespace memlab::interpose {

/// Makes the driver call, once more if it lacked memory that the pools could give back, and
/// measures what it took of the current context's device. `object()`: the string id of the file
/// that code came from.
template <class Real, class Object>
CUresult measured(Session& session, const Ledger::Call& call, Api api, const Real& real,
                  const Object& object) {
    const Ledger::Before before = session.ledger().before(call);
    const CUresult result = retry_after_release(session, real);
    if (result == CUDA_SUCCESS) {
        session.ledger().after(before, api, object());
    }
    return result;
}

/// The same for calls that load no code.
template <class Real>
CUresult measured(Session& session, const Ledger::Call& call, Api api, const Real& real) {
    return measured(session, call, api, real, [] { return std::uint32_t{0}; });
}

/// Measures the launch of a function or an executable graph that `launched` does not know at once,
/// if it is the first. Make it before the launch, call done() after it; the launch itself is not
/// inside memlab, and nothing of this changes its answer. While a stream captures nothing is
/// measured, and the next launch counts as the first.
class FirstLaunch {
  public:
    [[gnu::noinline, gnu::cold]] FirstLaunch(trace::LedgerKind kind, const void* handle) noexcept {
        if (launched.knows(Launched::key(handle))) {
            return;
        }
        Session* const session = Session::current();
        const InsideMemlab inside;
        if (session == nullptr || inside.nested()) {
            return;
        }
        Ledger& ledger = session->ledger();
        generation_ = launched.generation();
        key_ = ledger.launch_key(kind, handle);
        if (launched.knows(key_)) {
            return;
        }
        if (!ledger.enabled()) {
            launched.insert(key_, generation_);
        } else if (!session->captures().capturing()) {
            const bool is_function = kind == trace::LedgerKind::launch;
            before_ = ledger.before({.kind = kind, .launched = is_function ? handle : nullptr});
            ledger_ = &ledger;
        }
    }
    FirstLaunch(const FirstLaunch&) = delete;
    FirstLaunch& operator=(const FirstLaunch&) = delete;

    [[gnu::noinline, gnu::cold]] void done(Api api, CUresult result) noexcept {
        if (ledger_ == nullptr || result != CUDA_SUCCESS) {
            return;
        }
        const InsideMemlab inside;
        launched.insert(key_, generation_);
        if (before_.measures) {
            const void* const function = before_.call.launched;
            ledger_->after(
                before_, api,
                function != nullptr ? ledger_->code().find(ledger_->code().code_of(function)) : 0);
        }
    }

  private:
    Ledger* ledger_ = nullptr;  ///< null: it is not the first, or cannot be measured
    Launched::Key key_ = 0;
    std::uint64_t generation_ = 0;
    Ledger::Before before_ = {};
};

}  // namespace memlab::interpose
