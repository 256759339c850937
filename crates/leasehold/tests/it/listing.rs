//! Which names a listing contains.

use leasehold::{Client, Error};

/// `*` and `?` in a namespace are ordinary characters, as in a name.
#[tokio::test]
async fn a_namespace_is_no_part_of_the_pattern() -> Result<(), Error> {
    let client = Client::builder("memory:").namespace("*").connect().await?;
    let _guards = (client.mutex("x:").lock().await?, client.mutex("y").lock().await?);
    for (pattern, expected) in [("*", vec!["x:", "y"]), ("", vec![]), ("y", vec!["y"])] {
        let listed = client.list(pattern).await?;
        let names: Vec<_> = listed.names().iter().map(|key| key.as_str()).collect();
        assert_eq!(names, expected, "{pattern:?}");
    }
    Ok(())
}
