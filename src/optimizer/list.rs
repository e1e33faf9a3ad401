// Every optimizer whose type does not depend on its arguments, one per line. The registry of configs and the tests
// include this file and define both methods of `to`. In configs, `part` compiles the type's own loop; `boxed_members`
// makes a chain of boxes, which compiles none. `required()` is a mandatory number.
{
    // adaptive
    to.boxed_members(|| adabelief(required()));
    to.boxed_members(|| adagrad(required()));
    to.part(|| adam(required()));
    to.boxed_members(|| adam_mini(required()));
    to.boxed_members(|| adamax(required()));
    to.part(|| adamaxw(required()));
    to.part(|| adamw(required()));
    to.part(|| adan(required()));
    to.part(|| ademamix(required()));
    to.boxed_members(|| adopt(required()));
    to.boxed_members(|| amsgrad(required()));
    to.part(|| cautious_adamw(required()));
    to.part(|| madgrad(required()));
    to.part(|| mars(required()));
    to.part(|| optimistic_adam_v2(required()));
    to.boxed_members(|| radam(required()));
    to.boxed_members(|| stable_adamw(required()));
    to.boxed_members(|| yogi(required()));
    // contrib
    #[cfg(feature = "contrib")]
    {
        to.part(|| acprop(required()));
        to.part(momo);
        to.part(momo_adam);
        to.part(|| simplified_ademamix(required()));
    }
    // elementwise
    to.boxed_members(|| optimistic_gradient_descent(required()));
    // loss
    to.boxed_members(polyak_sgd);
    // matrix
    to.boxed_members(|| rowwise_adagrad(required()));
    #[cfg(feature = "faer")]
    to.boxed_members(|| shampoo(required()));
    to.boxed_members(|| sm3(required()));
    #[cfg(feature = "faer")]
    to.boxed_members(|| soap(required()));
    // norms
    to.boxed_members(|| fromage(required()));
    to.part(|| lamb(required()));
    to.part(|| lars(required()));
    to.boxed_members(|| novograd(required()));
    // parameter_free
    to.part(cocob);
    to.part(dadapt_adamw);
    to.part(dog);
    to.part(prodigy);
    to.part(schedule_free_adamw);
    to.part(schedule_free_sgd);
    // sign
    to.part(|| cautious_lion(required()));
    to.part(|| lion(required()));
    to.boxed_members(|| rprop(required()));
    to.boxed_members(|| sign_sgd(required()));
    to.part(|| signum(required()));
}
