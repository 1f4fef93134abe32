//! Kernels made to run over more workgroups in a row than the device allows.
//!
//! A row of `limit * k + rest` workgroups runs as `k` rows of `limit` and one of `rest`, and the
//! kernel sees the numbers of the one long row. The module's entry point is wrapped: the wrapper
//! works out those numbers and calls what was the entry point before.

use naga::{
    BinaryOperator, Binding, Block, BuiltIn, EntryPoint, Expression, Function, Handle, Literal,
    Module, Range, Scalar, Span, Statement, Type, TypeInner, VectorSize,
};
use terrane_core::device::DeviceError;

use super::dispatch::Groups;

/// The dispatches for `groups`, which has more than `limit` in its first dimension.
pub fn runs(groups: [u32; 3], limit: u32) -> Vec<Groups> {
    let [x, _, z] = groups;
    let (rows, rest) = (x / limit, x % limit);
    let mut runs = vec![Groups::of([limit, rows, z])];
    if rest > 0 {
        runs.push(Groups { first: [0, rows, 0], count: [rest, 1, z] });
    }
    runs
}

/// Wraps the entry point for rows of `limit` workgroups.
pub fn fold(module: &mut Module, entry: &str, limit: u32) -> Result<(), DeviceError> {
    let at = module
        .entry_points
        .iter()
        .position(|e| e.name == entry)
        .ok_or(DeviceError::InvalidCall("the module has no such compute entry point"))?;
    let vector = Type {
        name: None,
        inner: TypeInner::Vector { size: VectorSize::Tri, scalar: Scalar::U32 },
    };
    let vector = module.types.insert(vector, Span::UNDEFINED);
    let point = &module.entry_points[at];
    let mut inner = point.function.clone();
    inner.name = Some(format!("{entry}_folded"));
    for argument in &mut inner.arguments {
        match argument.binding.take() {
            Some(Binding::BuiltIn(BuiltIn::NumWorkGroups)) | None => {
                return Err(DeviceError::InvalidCall(
                    "more workgroups than the device's limit, in a kernel that counts them or takes its numbers in a struct",
                ));
            }
            Some(_) => {}
        }
    }
    let wrapper = Wrapper { limit, size: point.workgroup_size, vector };
    let original = point.function.clone();
    let inner = module.functions.append(inner, Span::UNDEFINED);
    let function = wrapper.function(&original, inner);
    let point: &mut EntryPoint = &mut module.entry_points[at];
    point.function = function;
    Ok(())
}

struct Wrapper {
    limit: u32,
    size: [u32; 3],
    vector: Handle<Type>,
}

impl Wrapper {
    /// A function with the original's arguments that calls `inner` with the folded numbers.
    fn function(&self, original: &Function, inner: Handle<Function>) -> Function {
        let mut f = Function { arguments: original.arguments.clone(), ..Function::default() };
        let group = Binding::BuiltIn(BuiltIn::WorkGroupId);
        let is_group = |a: &naga::FunctionArgument| a.binding.as_ref() == Some(&group);
        let group_at = f.arguments.iter().position(is_group).unwrap_or_else(|| {
            f.arguments.push(naga::FunctionArgument {
                name: Some("group".to_owned()),
                ty: self.vector,
                binding: Some(group.clone()),
            });
            f.arguments.len() - 1
        });
        let mut add = |e| f.expressions.append(e, Span::UNDEFINED);
        let given: Vec<_> =
            (0..f.arguments.len() as u32).map(|i| add(Expression::FunctionArgument(i))).collect();
        let mut literal = |n| add(Expression::Literal(Literal::U32(n)));
        let zero = literal(0);
        let limit = literal(self.limit);
        let across = literal(self.limit.wrapping_mul(self.size[0]));
        let down = literal(self.size[1]);
        let first = f.expressions.len();
        let row = self.part(&mut f, given[group_at], 1);
        let mut folded = Vec::new();
        for (argument, value) in original.arguments.iter().zip(&given) {
            folded.push(match argument.binding {
                Some(Binding::BuiltIn(BuiltIn::WorkGroupId)) => {
                    let x = self.moved(&mut f, *value, 0, row, limit, BinaryOperator::Add);
                    let z = self.part(&mut f, *value, 2);
                    self.compose(&mut f, [x, zero, z])
                }
                Some(Binding::BuiltIn(BuiltIn::GlobalInvocationId)) => {
                    let x = self.moved(&mut f, *value, 0, row, across, BinaryOperator::Add);
                    let y = self.moved(&mut f, *value, 1, row, down, BinaryOperator::Subtract);
                    let z = self.part(&mut f, *value, 2);
                    self.compose(&mut f, [x, y, z])
                }
                _ => *value,
            });
        }
        let emitted = Range::new_from_bounds(
            Handle::clone(&row),
            f.expressions.iter().last().map_or(row, |(last, _)| last),
        );
        debug_assert!(f.expressions.len() > first);
        let mut body = Block::new();
        body.push(Statement::Emit(emitted), Span::UNDEFINED);
        let call = Statement::Call { function: inner, arguments: folded, result: None };
        body.push(call, Span::UNDEFINED);
        body.push(Statement::Return { value: None }, Span::UNDEFINED);
        f.body = body;
        f
    }

    fn part(&self, f: &mut Function, base: Handle<Expression>, index: u32) -> Handle<Expression> {
        f.expressions.append(Expression::AccessIndex { base, index }, Span::UNDEFINED)
    }

    /// Component `index` of `base`, plus or minus `row * step`.
    fn moved(
        &self,
        f: &mut Function,
        base: Handle<Expression>,
        index: u32,
        row: Handle<Expression>,
        step: Handle<Expression>,
        op: BinaryOperator,
    ) -> Handle<Expression> {
        let left = self.part(f, base, index);
        let product = Expression::Binary { op: BinaryOperator::Multiply, left: row, right: step };
        let right = f.expressions.append(product, Span::UNDEFINED);
        f.expressions.append(Expression::Binary { op, left, right }, Span::UNDEFINED)
    }

    fn compose(&self, f: &mut Function, parts: [Handle<Expression>; 3]) -> Handle<Expression> {
        let whole = Expression::Compose { ty: self.vector, components: parts.to_vec() };
        f.expressions.append(whole, Span::UNDEFINED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_every_workgroup_once() {
        for x in [11, 20, 25, 100, 101] {
            let mut seen = vec![0; x as usize];
            for Groups { first, count } in runs([x, 1, 1], 10) {
                for row in first[1]..first[1] + count[1] {
                    (0..count[0]).for_each(|i| seen[(row * 10 + i) as usize] += 1);
                }
            }
            assert!(seen.iter().all(|n| *n == 1), "{x}");
        }
    }
}
