#include "autograd/trace.h"

namespace frugal {
namespace {

thread_local Trace* active = nullptr;

}  // namespace

Trace* active_trace() { return active; }
TraceScope::TraceScope(Trace& trace) : previous_(active) { active = &trace; }
TraceScope::~TraceScope() { active = previous_; }

}  // namespace frugal
