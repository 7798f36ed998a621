#include "autograd/trace.h"

namespace frugal {
namespace {

thread_local Trace* this_trace = nullptr;

}  // namespace

Trace* active_trace() { return this_trace; }
TraceScope::TraceScope(Trace& trace) : previous_(this_trace) { this_trace = &trace; }
TraceScope::~TraceScope() { this_trace = previous_; }

}  // namespace frugal
