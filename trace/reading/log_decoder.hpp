// Decodes the parts of an event log that it is pointed at, and delivers their records. Which parts,
// and in what order, decides who derives from it: a reader of a log as it is (log_reader.cpp), and
// one that goes on from where it was (log_tail.cpp).
//
// A sealed block is verified as a whole before any of its records is delivered; an open block (the
// last one, or one that was truncated) is decoded record by record up to the first zero byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trace/definitions.hpp"
#include "trace/event_codec.hpp"
#include "trace/log_ring.hpp"
#include "trace/reading/log_input.hpp"
#include "trace/reading/log_read_result.hpp"
#include "trace/reading/ring_scan.hpp"
#include "trace/record_sink.hpp"

namespace memlab::trace {

/// May throw std::bad_alloc, and what the sink throws. Thread-safety: none.
class LogDecoder {
  protected:
    /// `waits`: where the data ends, more may follow: nothing is said of how the log ended, and
    /// read_blocks() goes on from there when it is called again.
    LogDecoder(LogInput& input, std::string name, RecordSink& sink, bool waits = false);

    /// Reads the file's header. False: there is none, or not yet.
    bool header();
    /// From the input's position to the end of the data there, or of the input's limit.
    void read_blocks();
    /// Delivers a checkpoint. False: it is damaged.
    bool checkpoint(const FoundCheckpoint& checkpoint);
    /// The time of the last record of a ring's beginning; only the last blocks are decoded.
    std::uint64_t end_of_beginning();

    /// Sets the result; returns false.
    bool finish(LogStatus status, const std::string& what);
    bool damaged(const std::string& what);
    bool was_overwritten();
    std::string here() const { return "byte " + std::to_string(input_.offset()); }

    LogInput& input_;
    const std::string name_;
    RecordSink& sink_;
    const bool waits_;
    LogRing ring_;
    bool more_follows_ = false;   ///< behind this part of the log
    bool stopped_ = false;        ///< nothing more is to be read
    bool in_open_block_ = false;  ///< where the input is
    bool in_region_ = false;
    std::uint64_t region_ = 0;
    std::uint64_t latest_ns_ = 0;
    std::uint64_t stop_offset_ = 0;      ///< of the LogStopped; 0: there was none
    std::uint64_t dropped_ = 0;          ///< as it said
    CheckpointIndex* passed_ = nullptr;  ///< takes the checkpoints that are passed over
    LogReadResult result_;

  private:
    enum class Step : std::uint8_t { delivered, no_more, truncated, bad, ended };

    bool ring_header();
    bool end_of_part();
    bool cut_off();
    bool block();
    bool sealed_block(std::size_t length);
    bool open_block();
    /// Decodes and delivers the record at the input's position, within `size` bytes.
    Step record(std::size_t size);
    template <typename Record>
    Step read_record(ByteReader& from);
    template <typename Record>
    Step handle(const Record& record);
    Step handle(const LogStopped& record);
    Step handle(const End& record);
    Step read_event(std::uint8_t tag, ByteReader& from);
    Step deliver(Step step, const Event& event, bool freed, const ByteReader& from);
    void consume(const ByteReader& from);
    /// `delivered` when the record is valid.
    template <typename Record>
    Step check(DecodeStatus status, const Record& record);

    bool in_checkpoint_ = false;
    bool skims_ = false;  ///< what records refer to was not read
    Definitions definitions_;
    CodecState state_;
    std::string stopped_because_;
};

}  // namespace memlab::trace
