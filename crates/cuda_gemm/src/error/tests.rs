use super::*;

#[test]
fn an_unknown_kernel_names_the_nearest() {
    let known = vec!["naive", "tile1d", "tile2d"];
    let nearest = vec!["tile2d", "tile1d"];
    let error = Error::UnknownKernel { name: "tile".into(), nearest, known };
    assert_eq!(
        error.to_string(),
        "there is no kernel `tile`; the nearest are `tile2d` and `tile1d`"
    );
}
