// The interface of consumers of records.
#pragma once

#include "trace/record.hpp"

namespace memlab::trace {

/// Receives the records of a recording in order; kinds that it does not override are ignored. The
/// log writer, the aggregator and tests are sinks; the live recorder and the log reader feed them
/// valid records: what they refer to was defined before (Definitions). Not thread-safe: the caller
/// serializes.
class RecordSink {
  public:
    RecordSink() = default;
    RecordSink(const RecordSink&) = delete;
    RecordSink& operator=(const RecordSink&) = delete;
    virtual ~RecordSink() = default;

    virtual void on(const Event& /*record*/) {}
    /// A free_requested that completed immediately: stands for it and its completed_at_once().
    virtual void on_freed(const Event& free_requested) {
        on(free_requested);
        on(completed_at_once(free_requested));
    }
#define MEMLAB_ON(Record, name, tag) \
    virtual void on(const Record& /*record*/) {}
    MEMLAB_RECORD_KINDS(MEMLAB_ON)
#undef MEMLAB_ON
};

/// CRTP base of sinks that handle all kinds alike: Derived has a template take(record), with
/// overloads for special kinds. Derived must befriend this class where they are private.
template <typename Derived>
class GenericSink : public RecordSink {
  public:
    void on(const Event& record) final { self().take(record); }
#define MEMLAB_ON(Record, name, tag)      \
    void on(const Record& record) final { \
        self().take(record);              \
    }
    MEMLAB_RECORD_KINDS(MEMLAB_ON)
#undef MEMLAB_ON

  private:
    Derived& self() {
        return static_cast<Derived&>(*this);
    }
};

}  // namespace memlab::trace
