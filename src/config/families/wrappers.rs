//! Wrappers of other transformations.

use super::common::chain_of;
use crate::DType;
use crate::arguments::{Arguments, required};
use crate::config::fields::Fields;
use crate::config::registry::{InnerWithKeys, Member, Registry, Unconfigured, placeholder};
use crate::internal::recipe::{Entries, OneOrMore, words};
use crate::needs::Nothing;
use crate::part::StepContext;
use crate::recipe::{ConfigError, FromRecipe, Node, Recipe, Result};
use crate::select::{Labels, Mask};
use crate::wrapper::{
    Condition, NamedChain, StepGe, StepLt, StepMod, allow, apply_if_finite, cautious, conditionally_mask,
    conditionally_transform, dynamic_loss_scale, flatten, freezable, freeze, graft, inject_hyperparams, lookahead,
    masked, master, multi_steps, params_ema, params_swa, partition, quantized, sam, schedule_free, selective_transform,
    skip_absent, skip_large_updates, skip_not_finite, skip_on_spike, step_ge, step_lt, step_mod, value_lt,
};

pub(super) fn register(r: &mut Registry) {
    r.wrapper(|inner| apply_if_finite(inner, 1))
        .wrapper(cautious)
        .wrapper(dynamic_loss_scale)
        .wrapper(flatten)
        .wrapper(|inner| lookahead(inner, 1, required()))
        .wrapper(master)
        .wrapper(|inner| params_ema(inner, required()))
        .wrapper(params_swa)
        .wrapper(quantized)
        .wrapper(|inner| schedule_free(inner, required()))
        // These have the inner transformation's arguments, if any.
        .named("allow", || Unconfigured::member(allow(placeholder(), [])))
        .named("freezable", || Unconfigured::member(freezable(placeholder())))
        .named("skip_absent", || Unconfigured::member(skip_absent(placeholder())));
    // No extra argument has the parameters' leaves, so `mask_compatible_extra_args` has no effect.
    r.constructor("masked", |_| Ok(Unconfigured::member(masked(placeholder(), Mask::all()))))
        .reads(&["mask_compatible_extra_args"]);
    r.constructor("multi_steps", |given| {
        let wrapped = multi_steps(placeholder(), 1);
        Ok(match given.or("should_skip_update_fn", None)? {
            None => Unconfigured::named(wrapped),
            Some(Skip::NotFinite) => Unconfigured::named(wrapped.should_skip_update_fn(skip_not_finite())),
            Some(Skip::Large(norm)) => Unconfigured::named(wrapped.should_skip_update_fn(skip_large_updates(norm))),
        })
    })
    .reads(&["should_skip_update_fn"]);
    r.constructor("skip_on_spike", |given| {
        let wrapped = skip_on_spike(placeholder(), 0.0);
        Ok(match given.or("of", Of::Norm)? {
            Of::Norm => Unconfigured::named(wrapped),
            Of::Loss => Unconfigured::named(wrapped.of_loss()),
        })
    })
    .reads(&["of"]);
    for (name, mask) in [("conditionally_transform", false), ("conditionally_mask", true)] {
        r.constructor(name, move |given| conditionally(given, mask))
            .reads(&["should_transform_fn", "forward_extra_args"]);
    }
    r.whole("chain", |node| Ok(chain_of(node.read::<Vec<Member>>()?)), <Vec<Member> as FromRecipe>::schema);
    r.whole(
        "named_chain",
        |node| Ok(Box::new(NamedChain::from_iter(node.read::<Vec<(String, Member)>>()?))),
        <Vec<(String, Member)> as FromRecipe>::schema,
    );
    r.whole("freeze", read_freeze, || object(&[("mask", <Mask as FromRecipe>::schema())], &["mask"]));
    r.whole("selective_transform", read_selective, || {
        let arguments =
            [("optimizer", <Member as FromRecipe>::schema()), ("freeze_mask", <Mask as FromRecipe>::schema())];
        object(&arguments, &["optimizer", "freeze_mask"])
    });
    r.whole("partition", read_partition, || {
        let transforms = <Entries<Member> as FromRecipe>::schema();
        object(&[("transforms", transforms), ("labels", <Labels as FromRecipe>::schema())], &["transforms", "labels"])
    });
    r.whole("graft", read_graft, || {
        let member = <Member as FromRecipe>::schema;
        object(&[("direction", member()), ("magnitude", member())], &["direction", "magnitude"])
    });
    r.whole("sam", read_sam, || {
        let member = <Member as FromRecipe>::schema;
        let flag = <bool as FromRecipe>::schema;
        let arguments = [
            ("optimizer", member()),
            ("adv_optimizer", member()),
            ("sync_period", <u64 as FromRecipe>::schema()),
            ("reset_state", flag()),
            ("opaque_mode", flag()),
            ("batch_axis_name", r#"{"enum": [null, "none", false]}"#.into()),
        ];
        object(&arguments, &["optimizer", "adv_optimizer"])
    });
    r.whole("inject_hyperparams", read_inject, || {
        let arguments = [
            ("inner", <Member as FromRecipe>::schema()),
            ("static_args", <OneOrMore<String> as FromRecipe>::schema()),
            ("hyperparam_dtype", <Option<DType> as FromRecipe>::schema()),
        ];
        object(&arguments, &["inner"])
    });
}

fn object(arguments: &[(&str, String)], required: &[&str]) -> String {
    let properties: Vec<_> = arguments.iter().map(|(name, schema)| format!("{name:?}: {schema}")).collect();
    let properties = properties.join(", ");
    format!(
        r#"{{"type": "object", "properties": {{{properties}}}, "required": {required:?}, "additionalProperties": false}}"#
    )
}

fn read_freeze(node: &Node<'_>) -> Result<Member> {
    Ok(Box::new(freeze(node.fields(&["mask"])?.required::<Mask>("mask")?)))
}

fn read_selective(node: &Node<'_>) -> Result<Member> {
    let fields = node.fields(&["optimizer", "freeze_mask"])?;
    let (optimizer, mask) =
        ConfigError::both(fields.required::<Member>("optimizer"), fields.required::<Mask>("freeze_mask"))?;
    Ok(Box::new(selective_transform(optimizer, mask)))
}

fn read_partition(node: &Node<'_>) -> Result<Member> {
    let fields = node.fields(&["transforms", "labels"])?;
    let transforms = fields.or("transforms", Entries::<Member>(Vec::new()));
    let (Entries(transforms), labels) = ConfigError::both(transforms, fields.required::<Labels>("labels"))?;
    Ok(Box::new(partition(transforms, labels)))
}

fn read_graft(node: &Node<'_>) -> Result<Member> {
    let fields = node.fields(&["direction", "magnitude"])?;
    let (direction, magnitude) =
        ConfigError::both(fields.required::<Member>("direction"), fields.required::<Member>("magnitude"))?;
    Ok(Box::new(graft(direction, magnitude)))
}

fn read_sam(node: &Node<'_>) -> Result<Member> {
    let known = ["optimizer", "adv_optimizer", "sync_period", "reset_state", "opaque_mode", "batch_axis_name"];
    let fields = node.fields(&known)?;
    // A single process has no axis to take a mean over.
    if let Some(axis) = fields.get("batch_axis_name").filter(|axis| !axis.is_none() && axis.read() != Ok(false)) {
        return Err(axis.wrong("null or false"));
    }
    let (optimizer, adversarial) =
        ConfigError::both(fields.required::<Member>("optimizer"), fields.required::<Member>("adv_optimizer"))?;
    let wrapped = sam(optimizer, adversarial)
        .sync_period(fields.or("sync_period", 2)?)
        .reset_state(fields.or("reset_state", true)?);
    Ok(if fields.or("opaque_mode", false)? { Box::new(wrapped.opaque_mode()) } else { Box::new(wrapped) })
}

fn read_inject(node: &Node<'_>) -> Result<Member> {
    let fields = node.fields(&["inner", "static_args", "hyperparam_dtype"])?;
    let missing = || ConfigError::wrong(node.place(), "an argument `inner`", "none");
    let inner = fields.get("inner").ok_or_else(missing)?;
    let OneOrMore(mut static_args) = fields.or("static_args", OneOrMore(Vec::<String>::new()))?;
    let InnerWithKeys(mut inside, of_config) = inner.read()?;
    // An argument with another name in the builder, such as a `key`, is never injected.
    let mut of_builder = Vec::new();
    inside.arguments(&mut |name, _| of_builder.push(name));
    static_args.retain(|name| of_builder.contains(&&**name) || !of_config.contains(&&**name));
    let injected = inject_hyperparams(inside).static_args(static_args);
    Ok(match fields.or::<Option<DType>>("hyperparam_dtype", None)? {
        Some(dtype) => Box::new(injected.hyperparam_dtype(dtype)),
        None => Box::new(injected),
    })
}

impl FromRecipe for InnerWithKeys {
    fn from_recipe(node: &Node<'_>) -> Result<InnerWithKeys> {
        let (name, inside) = node.call()?;
        if name != "masked" {
            let mut named = InnerWithKeys(Box::new(crate::transform::identity()), Vec::new());
            node.build_into(&mut named)?;
            return Ok(named);
        }
        let fields = inside.fields(&["inner", "mask", "freeze_others", "mask_compatible_extra_args"])?;
        let InnerWithKeys(inner, names) = fields.required("inner")?;
        let wrapped = masked(inner, fields.required::<Mask>("mask")?);
        let frozen = fields.or("freeze_others", false)?;
        Ok(InnerWithKeys(Box::new(if frozen { wrapped.freeze_others() } else { wrapped }), names))
    }
}

#[derive(Clone, Copy)]
enum Of {
    Norm,
    Loss,
}

words!(Of { Norm = "norm", Loss = "loss" });

enum Skip {
    NotFinite,
    Large(f64),
}

impl FromRecipe for Skip {
    fn from_recipe(node: &Node<'_>) -> Result<Skip> {
        const LARGE: &str = "{\"skip_large_updates\": {\"max_squared_norm\": ..}}";
        if let Recipe::Text(name) = node.value() {
            return match &**name {
                "skip_large_updates" => Err(node.wrong(LARGE)),
                _ => node.choice(&[("skip_not_finite", ())]).map(|()| Skip::NotFinite),
            };
        }
        let (name, inside) = node.single("\"skip_not_finite\" or {\"skip_large_updates\": ..}")?;
        if name != "skip_large_updates" {
            return Err(ConfigError::unknown(node.place(), "skip function", name, ["skip_large_updates"]));
        }
        Ok(Skip::Large(inside.fields(&["max_squared_norm"])?.required("max_squared_norm")?))
    }
}

enum When {
    Less(u64),
    AtLeast(u64),
    Mod(u64, u64),
    ValueLess(f64),
}

impl FromRecipe for When {
    fn from_recipe(node: &Node<'_>) -> Result<When> {
        let (name, inside) = node.single("a condition: {\"step_lt\": n} or the like")?;
        match name {
            "step_lt" => inside.read().map(When::Less),
            "step_ge" => inside.read().map(When::AtLeast),
            "step_mod" => match inside.read::<Vec<u64>>()?[..] {
                [n, remainder] => Ok(When::Mod(n, remainder)),
                _ => Err(inside.wrong("two integers: the divisor of the step and the required remainder")),
            },
            "value_lt" => inside.read().map(When::ValueLess),
            other => {
                let known = ["step_lt", "step_ge", "step_mod", "value_lt"];
                Err(ConfigError::unknown(node.place(), "condition", other, known))
            }
        }
    }
}

/// Any condition on the step: one type, so that conditional wrappers compile once.
#[derive(Clone, Debug)]
enum OfStep {
    Less(StepLt),
    AtLeast(StepGe),
    Mod(StepMod),
}

impl Condition for OfStep {
    type Needs = Nothing;

    fn validate(&self) -> crate::Result<()> {
        match self {
            OfStep::Less(condition) => condition.validate(),
            OfStep::AtLeast(condition) => condition.validate(),
            OfStep::Mod(condition) => condition.validate(),
        }
    }

    fn to_recipe(&self) -> Recipe {
        match self {
            OfStep::Less(condition) => condition.to_recipe(),
            OfStep::AtLeast(condition) => condition.to_recipe(),
            OfStep::Mod(condition) => condition.to_recipe(),
        }
    }

    fn holds(&self, step: u64, at: &StepContext<'_>) -> bool {
        match self {
            OfStep::Less(condition) => condition.holds(step, at),
            OfStep::AtLeast(condition) => condition.holds(step, at),
            OfStep::Mod(condition) => condition.holds(step, at),
        }
    }
}

fn conditionally(given: &Fields<'_>, mask: bool) -> Result<Unconfigured> {
    fn unconfigured(mask: bool, condition: impl Condition) -> Result<Unconfigured> {
        Ok(match mask {
            true => Unconfigured::named(conditionally_mask(placeholder(), condition)),
            false => Unconfigured::named(conditionally_transform(placeholder(), condition)),
        })
    }
    let told = given.or("forward_extra_args", false)?;
    match given.required("should_transform_fn", When::Less(0))? {
        When::Less(n) => unconfigured(mask, OfStep::Less(step_lt(n))),
        When::AtLeast(n) => unconfigured(mask, OfStep::AtLeast(step_ge(n))),
        When::Mod(n, remainder) => unconfigured(mask, OfStep::Mod(step_mod(n, remainder))),
        When::ValueLess(limit) if told => unconfigured(mask, value_lt(limit)),
        When::ValueLess(_) => {
            Err(given.refuse("`forward_extra_args` true, so that the condition receives the value", "false"))
        }
    }
}
