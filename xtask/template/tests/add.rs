//! Runs on the software device where there is no GPU.

#[test]
fn vectors_are_added() {
    let a: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let b: Vec<f32> = a.iter().map(|x| 0.5 * x).collect();
    let sums = {{crate_name}}::add(&a, &b).unwrap();
    assert!(sums.iter().zip(&a).all(|(sum, x)| *sum == 1.5 * x));
}
