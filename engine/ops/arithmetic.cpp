// add, sub, mul, div, maximum and minimum of two tensors, or of a tensor and a number; neg, abs.
#include "engine/kernels/elementwise.h"
#include "engine/ops.h"
#include "engine/ops/space.h"

namespace chargrad {
namespace {

// Calls f with S = float, double or int64_t.
template <class F>
void visit_numbers(DType dtype, F&& f) {
  if (dtype == kInt64) {
    f.template operator()<int64_t>();
  } else {
    visit_floating(dtype, f);
  }
}

// Calls f with the types of two operands as Operands::mixed has them.
template <class F>
void visit_operands(DType a, DType b, F&& f) {
  if (a != b) {
    a == kBFloat16 ? f.template operator()<bfloat16, float>()
                   : f.template operator()<float, bfloat16>();
  } else if (a == kInt64) {
    f.template operator()<int64_t, int64_t>();
  } else {
    visit_any_floating(a, [&f]<class S>() { f.template operator()<S, S>(); });
  }
}

// Both operands in the dtype of the result.
struct Operands {
  Operands(const Tensor& left, const Tensor& right) : dtype(result_type(left, right)) {
    a = to(left, dtype);
    b = to(right, dtype);
  }

  // For the kernels that widen bfloat16 beside float32 themselves: it stays as it is.
  static Operands mixed(const Tensor& left, const Tensor& right) {
    const DType dtype = result_type(left, right);
    const auto keep_or_convert = [dtype](const Tensor& x) {
      return dtype == kFloat32 && x.dtype() == kBFloat16 ? x : to(x, dtype);
    };
    return {keep_or_convert(left), keep_or_convert(right), dtype};
  }

  Tensor a, b;
  DType dtype;

 private:
  Operands(Tensor left, Tensor right, DType result)
      : a(std::move(left)), b(std::move(right)), dtype(result) {}
};

// kernel(space, y, a, b) over the broadcast shape.
template <class Kernel>
Tensor apply(const char* op, const Operands& in, Kernel kernel) {
  Tensor y = empty(broadcast_shapes(op, in.a.shape(), in.b.shape()), in.dtype);
  const auto space = space_of(y, in.a, in.b);
  visit_numbers(in.dtype, [&]<class S>() {
    kernel(space, y.data<S>(), static_cast<const S*>(in.a.data<S>()),
           static_cast<const S*>(in.b.data<S>()));
  });
  return y;
}

// The same for add, sub and mul, whose kernels take bfloat16 too.
template <class Kernel>
Tensor apply_mixed(const char* op, const Operands& in, Kernel kernel) {
  Tensor y = empty(broadcast_shapes(op, in.a.shape(), in.b.shape()), in.dtype);
  const auto space = space_of(y, in.a, in.b);
  visit_operands(in.a.dtype(), in.b.dtype(), [&]<class A, class B>() {
    kernel(space, y.data<kernels::Sum<A, B>>(), static_cast<const A*>(in.a.data<A>()),
           static_cast<const B*>(in.b.data<B>()));
  });
  return y;
}

// The types that kernels do not compute in: bfloat16 by float32, bool by int64.
bool is_indirect(DType dtype) {
  return dtype == kBFloat16 || dtype == kBool;
}
template <class Op>
Tensor indirectly(const Operands& in, Op op) {
  const DType wide = in.dtype == kBool ? kInt64 : kFloat32;
  return to(op(to(in.a, wide), to(in.b, wide)), in.dtype);
}

// What an operand's gradient needs of the other is saved only if it will be asked for.
Tensor saved_for(const Tensor& other, const Tensor& x) {
  return other.requires_grad() ? x : Tensor();
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  const Operands in = Operands::mixed(a, b);
  if (in.dtype == kBool) {
    return indirectly(in, [](const Tensor& u, const Tensor& v) { return add(u, v); });
  }
  const auto sum = [](const Operands& of) {
    return apply_mixed("add", of, [](const auto&... all) { kernels::add(all...); });
  };
  Tensor y = sum(in);
  Saved kept;
  RecomputeFn again;
  if (is_recomputed(y)) {
    // Of embeddings and positions next to nothing must be kept for making their sum again.
    Saved operands = save(in.a, in.b).recompute(0, in.a).recompute(1, in.b);
    if (operands.bytes() <= y.numel() * dtype_size(y.dtype()) / 16) {
      kept = std::move(operands);
      again = [sum](const Saved& saved) { return sum(Operands::mixed(saved[0], saved[1])); };
    }
  }
  return record(
      "add", y, {in.a, in.b}, std::move(kept),
      [to_a = in.a.shape(), to_b = in.b.shape()](const Tensor& dy, const Saved& saved) -> Grads {
        return {saved.needs_grad(0) ? sum_to(dy, to_a) : Tensor(),
                saved.needs_grad(1) ? sum_to(dy, to_b) : Tensor()};
      },
      again);
}

Tensor sub(const Tensor& a, const Tensor& b) {
  const Operands in = Operands::mixed(a, b);
  CHARGRAD_CHECK(in.dtype != kBool, "sub: two bool tensors cannot be subtracted");
  Tensor y = apply_mixed("sub", in, [](const auto&... all) { kernels::sub(all...); });
  return record(
      "sub", y, {in.a, in.b}, save(),
      [to_a = in.a.shape(), to_b = in.b.shape()](const Tensor& dy, const Saved& saved) -> Grads {
        return {saved.needs_grad(0) ? sum_to(dy, to_a) : Tensor(),
                saved.needs_grad(1) ? neg(sum_to(dy, to_b)) : Tensor()};
      });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  const Operands in = Operands::mixed(a, b);
  if (in.dtype == kBool) {
    return indirectly(in, [](const Tensor& u, const Tensor& v) { return mul(u, v); });
  }
  Tensor y = apply_mixed("mul", in, [](const auto&... all) { kernels::mul(all...); });

  // da = dy * b, db = dy * a.
  return record(
      "mul", y, {in.a, in.b}, save(saved_for(in.b, in.a), saved_for(in.a, in.b)),
      [to_a = in.a.shape(), to_b = in.b.shape()](const Tensor& dy, const Saved& saved) -> Grads {
        return {saved.needs_grad(0) ? sum_to(mul(dy, saved[1]), to_a) : Tensor(),
                saved.needs_grad(1) ? sum_to(mul(dy, saved[0]), to_b) : Tensor()};
      });
}

Tensor div(const Tensor& a, const Tensor& b) {
  const Operands in(a, b);
  if (!is_floating(in.dtype)) {
    return div(to(in.a, kFloat32), to(in.b, kFloat32));
  }
  if (is_indirect(in.dtype)) {
    return indirectly(in, [](const Tensor& u, const Tensor& v) { return div(u, v); });
  }
  Tensor y = empty(broadcast_shapes("div", in.a.shape(), in.b.shape()), in.dtype);
  const auto space = space_of(y, in.a, in.b);
  visit_floating(in.dtype, [&]<class S>() {
    kernels::div<S>(space, y.data<S>(), in.a.data<S>(), in.b.data<S>());
  });

  // da = dy / b, db = -dy * a / b^2.
  return record(
      "div", y, {in.a, in.b}, save(saved_for(in.b, in.a), in.b),
      [to_a = in.a.shape(), to_b = in.b.shape()](const Tensor& dy, const Saved& saved) -> Grads {
        const Tensor& divisor = saved[1];
        Grads grads(2);
        if (saved.needs_grad(0)) {
          grads[0] = sum_to(div(dy, divisor), to_a);
        }
        if (saved.needs_grad(1)) {
          Tensor db = empty_like(dy);
          const auto over = space_of(db, dy, saved[0], divisor);
          visit_floating(dy.dtype(), [&]<class S>() {
            kernels::div_backward<S>(over, db.data<S>(), dy.data<S>(), saved[0].data<S>(),
                                     divisor.data<S>());
          });
          grads[1] = sum_to(db, to_b);
        }
        return grads;
      });
}

namespace {

// maximum and minimum: `forward` and `backward` are the kernels.
template <class Forward, class Backward>
Tensor extremum(const char* op, const Operands& in, Forward forward, Backward backward) {
  if (is_indirect(in.dtype)) {
    return indirectly(in, [&](const Tensor& u, const Tensor& v) {
      return extremum(op, Operands(u, v), forward, backward);
    });
  }
  Tensor y = apply(op, in, forward);

  // dy where the operand was chosen, half of it at a tie.
  return record(op, y, {in.a, in.b}, save(in.a, in.b),
                [backward](const Tensor& dy, const Saved& saved) -> Grads {
                  Grads grads(2);
                  for (const size_t i : {size_t{0}, size_t{1}}) {
                    if (!saved.needs_grad(i)) {
                      continue;
                    }
                    const Tensor &mine = saved[i], &other = saved[1 - i];
                    Tensor dx = empty_like(dy);
                    const auto over = space_of(dx, dy, mine, other);
                    visit_floating(dy.dtype(), [&]<class S>() {
                      backward(over, dx.data<S>(), static_cast<const S*>(dy.data<S>()),
                               static_cast<const S*>(mine.data<S>()),
                               static_cast<const S*>(other.data<S>()));
                    });
                    grads[i] = sum_to(dx, mine.shape());
                  }
                  return grads;
                });
}

}  // namespace

Tensor maximum(const Tensor& a, const Tensor& b) {
  return extremum(
      "maximum", Operands(a, b), [](const auto&... all) { kernels::maximum(all...); },
      [](const auto&... all) { kernels::maximum_backward(all...); });
}

Tensor minimum(const Tensor& a, const Tensor& b) {
  return extremum(
      "minimum", Operands(a, b), [](const auto&... all) { kernels::minimum(all...); },
      [](const auto&... all) { kernels::minimum_backward(all...); });
}

Tensor add(const Tensor& a, double b) {
  return add(a, number_beside(a, b));
}
Tensor sub(const Tensor& a, double b) {
  return sub(a, number_beside(a, b));
}
Tensor mul(const Tensor& a, double b) {
  return mul(a, number_beside(a, b));
}
Tensor div(const Tensor& a, double b) {
  return div(a, number_beside(a, b));
}
Tensor sub(double a, const Tensor& b) {
  return sub(number_beside(b, a), b);
}

Tensor neg(const Tensor& x) {
  CHARGRAD_CHECK(x.dtype() != kBool, "neg: a bool tensor has no negative");
  if (x.dtype() == kBFloat16) {
    return via_float32(x, [](const Tensor& wide) { return neg(wide); });
  }
  Tensor y = empty_like(x);
  const auto space = space_of(y, x);
  visit_numbers(x.dtype(), [&]<class S>() { kernels::neg<S>(space, y.data<S>(), x.data<S>()); });
  return record("neg", y, {x}, save(),
                [](const Tensor& dy, const Saved&) -> Grads { return {neg(dy)}; });
}

Tensor abs(const Tensor& x) {
  CHARGRAD_CHECK(x.dtype() != kBool, "abs: a bool tensor has no absolute value");
  if (x.dtype() == kBFloat16) {
    return via_float32(x, [](const Tensor& wide) { return abs(wide); });
  }
  Tensor y = empty_like(x);
  const auto space = space_of(y, x);
  visit_numbers(x.dtype(), [&]<class S>() { kernels::abs<S>(space, y.data<S>(), x.data<S>()); });

  // dx = dy * sign(x).
  return record("abs", y, {x}, save(x), [](const Tensor& dy, const Saved& saved) -> Grads {
    Tensor dx = empty_like(dy);
    const auto over = space_of(dx, dy, saved[0]);
    visit_floating(dy.dtype(), [&]<class S>() {
      kernels::abs_backward<S>(over, dx.data<S>(), dy.data<S>(), saved[0].data<S>());
    });
    return {dx};
  });
}

}  // namespace chargrad
