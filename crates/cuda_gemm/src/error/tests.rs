use super::*;

#[test]
fn an_unknown_kernel_names_the_nearest_and_all() {
    let known = vec!["naive", "tile2d"];
    let error = Error::UnknownKernel { name: "tile".into(), nearest: Some("tile2d"), known };
    assert_eq!(
        error.to_string(),
        "there is no kernel `tile` (did you mean `tile2d`?); the kernels are naive, tile2d"
    );
}
