// A sink that takes every record alike: Derived has take(record), a template for all kinds, and
// overloads for those that it treats otherwise.
#pragma once

#include "trace/record.hpp"

namespace memlab::report {

/// Derived makes this a friend where its take() is private.
template <typename Derived>
class EveryRecord : public trace::RecordSink {
  public:
    void on(const trace::ProcessInfo& record) final { self().take(record); }
    void on(const trace::OptionValue& record) final { self().take(record); }
    void on(const trace::DeviceInfo& record) final { self().take(record); }
    void on(const trace::ContextInfo& record) final { self().take(record); }
    void on(const trace::ContextLost& record) final { self().take(record); }
    void on(const trace::ThreadInfo& record) final { self().take(record); }
    void on(const trace::StringDef& record) final { self().take(record); }
    void on(const trace::ModuleDef& record) final { self().take(record); }
    void on(const trace::PythonFrameDef& record) final { self().take(record); }
    void on(const trace::StackDef& record) final { self().take(record); }
    void on(const trace::Event& record) final { self().take(record); }
    void on(const trace::OomEvent& record) final { self().take(record); }
    void on(const trace::DeviceSample& record) final { self().take(record); }
    void on(const trace::Missed& record) final { self().take(record); }
    void on(const trace::Work& record) final { self().take(record); }
    void on(const trace::Bypass& record) final { self().take(record); }
    void on(const trace::Coverage& record) final { self().take(record); }
    void on(const trace::LogStopped& record) final { self().take(record); }
    void on(const trace::End& record) final { self().take(record); }

  private:
    Derived& self() { return static_cast<Derived&>(*this); }
};

}  // namespace memlab::report
