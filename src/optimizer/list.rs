// Every optimizer whose type does not depend on its arguments, one per line. The registry of configs and the tests
// include this file and define both methods of `to`. In configs, `part` compiles the type's own loop; `in_parts` makes
// a chain of boxes, which compiles none. `required()` is a mandatory number.
{
    // adaptive
    to.part(|| acprop(required()));
    to.in_parts(|| adabelief(required()));
    to.in_parts(|| adagrad(required()));
    to.part(|| adam(required()));
    to.in_parts(|| adam_mini(required()));
    to.in_parts(|| adamax(required()));
    to.part(|| adamaxw(required()));
    to.part(|| adamw(required()));
    to.part(|| adan(required()));
    to.part(|| ademamix(required()));
    to.in_parts(|| adopt(required()));
    to.in_parts(|| amsgrad(required()));
    to.part(|| cautious_adamw(required()));
    to.part(|| madgrad(required()));
    to.part(|| mars(required()));
    to.part(|| optimistic_adam_v2(required()));
    to.in_parts(|| radam(required()));
    to.part(|| simplified_ademamix(required()));
    to.in_parts(|| stable_adamw(required()));
    to.in_parts(|| yogi(required()));
    // elementwise
    to.in_parts(|| optimistic_gradient_descent(required()));
    // loss
    to.part(momo);
    to.part(momo_adam);
    to.in_parts(polyak_sgd);
    // matrix
    to.in_parts(|| rowwise_adagrad(required()));
    #[cfg(feature = "faer")]
    to.in_parts(|| shampoo(required()));
    to.in_parts(|| sm3(required()));
    #[cfg(feature = "faer")]
    to.in_parts(|| soap(required()));
    // norms
    to.in_parts(|| fromage(required()));
    to.part(|| lamb(required()));
    to.part(|| lars(required()));
    to.in_parts(|| novograd(required()));
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
    to.in_parts(|| rprop(required()));
    to.in_parts(|| sign_sgd(required()));
    to.part(|| signum(required()));
}
