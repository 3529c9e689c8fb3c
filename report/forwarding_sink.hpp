// A sink in front of another: it passes every record on. Who wants to see some of them on their way
// overrides those, and passes them on with forward().
#pragma once

#include "profiler/trace/record.hpp"

namespace memlab::report {

/// Thread-safety: none. `to` must outlive it.
class ForwardingSink : public trace::RecordSink {
  public:
    explicit ForwardingSink(trace::RecordSink& to) : to_(to) {}

    void on(const trace::ProcessInfo& record) override { forward(record); }
    void on(const trace::OptionValue& record) override { forward(record); }
    void on(const trace::DeviceInfo& record) override { forward(record); }
    void on(const trace::ContextInfo& record) override { forward(record); }
    void on(const trace::ContextLost& record) override { forward(record); }
    void on(const trace::StringDef& record) override { forward(record); }
    void on(const trace::ModuleDef& record) override { forward(record); }
    void on(const trace::PythonFrameDef& record) override { forward(record); }
    void on(const trace::StackDef& record) override { forward(record); }
    void on(const trace::Event& record) override { forward(record); }
    void on(const trace::OomEvent& record) override { forward(record); }
    void on(const trace::DeviceSample& record) override { forward(record); }
    void on(const trace::Missed& record) override { forward(record); }
    void on(const trace::Work& record) override { forward(record); }
    void on(const trace::Bypass& record) override { forward(record); }
    void on(const trace::Coverage& record) override { forward(record); }
    void on(const trace::End& record) override { forward(record); }

  protected:
    template <typename Record>
    void forward(const Record& record) {
        to_.on(record);
    }

  private:
    trace::RecordSink& to_;
};

}  // namespace memlab::report
