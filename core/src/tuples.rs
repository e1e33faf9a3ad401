//! The one list of tuple lengths.

/// Calls a macro for tuples of 0 to 12 members, with a type name and an index for each member.
macro_rules! up_to_twelve {
    ($each:ident) => {
        $each!();
        $each!(A 0);
        $each!(A 0, B 1);
        $each!(A 0, B 1, C 2);
        $each!(A 0, B 1, C 2, D 3);
        $each!(A 0, B 1, C 2, D 3, E 4);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
        $each!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
    };
}
pub(crate) use up_to_twelve;
