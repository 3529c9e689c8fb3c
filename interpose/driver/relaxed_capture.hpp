// Makes driver calls that a stream capture of another thread would refuse.
#pragma once

#include "interpose/driver/driver.hpp"

namespace memlab::interpose {

/// While another thread captures in global mode, calls that CUDA thinks unsafe would fail and end
/// that capture; ours cannot hurt it, so they run in relaxed mode. `needed` false costs nothing.
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
