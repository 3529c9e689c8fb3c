// RAII guard for driver calls that another thread's stream capture would refuse.
#pragma once

#include "interpose/driver/driver.hpp"

namespace memlab::interpose {

/// While another thread captures in global mode, potentially unsafe calls fail and invalidate that
/// capture. memlab's calls cannot affect it, so they run in relaxed mode. `needed` false costs
/// nothing.
class RelaxedCapture {
  public:
    explicit RelaxedCapture(bool needed) {
        exchanged_ =
            needed && call_real(&Driver::cuThreadExchangeStreamCaptureMode, &mode_) == CUDA_SUCCESS;
    }
    ~RelaxedCapture() {
        if (exchanged_) {
            call_real(&Driver::cuThreadExchangeStreamCaptureMode, &mode_);
        }
    }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  private:
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool exchanged_ = false;
};

}  // namespace memlab::interpose
