use super::*;
use crate::EXAMPLE;

fn example_provider() -> NewProvider {
    NewProvider {
        id: "acme".to_owned(),
        dialect: Some(tribune_providers::ApiDialect::OpenAiCompatible),
        base_url: Some("https://models.example.org/v1".to_owned()),
        key_env: Some("ACME_API_KEY".to_owned()),
        is_local: false,
        models: vec![DeclaredModel {
            name: "large-1".to_owned(),
            context_window: 8192,
            max_output_tokens: 1024,
        }],
    }
}

fn added(text: &str) -> String {
    with_provider("config.json5", text, &example_provider(), Existing::Keep)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn an_empty_text_gets_all_parent_sections() {
    let wanted = r#"{
  models: {
    providers: {
      acme: {
        kind: "openai_compatible",
        baseUrl: "https://models.example.org/v1",
        keyEnv: "ACME_API_KEY",
        models: {
          "large-1": { contextWindow: 8192, maxOutputTokens: 1024 },
        },
      },
    },
  },
}
"#;
    assert_eq!(added("{}\n"), wanted);
}

#[test]
fn existing_text_is_never_lost() {
    let texts = [
        EXAMPLE,
        "{}",
        "// mine\n{ /* empty */ } // end",
        "{ log: { level: 'debug' } }",
        "{log:{level:'debug'},}",
        "{\n\tlog: { level: \"debug\" } // loud, } and {\n}\n",
        "{\n    models: {\n        keepTurns: 9 // enough\n        // no provider yet\n    }\n}",
        "{ models: { providers: {} } }",
        "{ \"mod\\u0065ls\": { 'providers': { moonshot: { startupValidation: \"off\" } /* } */ } } }",
        "{\r\n  models: {\r\n    providers: {\r\n      // acme: { commented: out },\r\n    },\r\n  },\r\n}\r\n",
        "{ log: { level: 'info' }, models: { providers: { a: { baseUrl: 'https://a.example//x', keyEnv: 'A_KEY' } } } }",
    ];
    for text in texts {
        let changed = added(text);
        let mut rest = changed.chars();
        // The old text is still there in its order; the edit only inserted text.
        let is_kept =
            text.chars().filter(|char| !char.is_whitespace()).all(|char| rest.any(|other| other == char));
        assert!(is_kept, "{text}\n---\n{changed}");
        let comments = |text: &str| text.matches("//").count() + text.matches("/*").count();
        assert_eq!(comments(&changed), comments(text) + 1, "the one more is the `//` of the URL: {changed}");
        let config = Config::parse("config.json5", &changed).unwrap();
        assert_eq!(config.models.providers["acme"].key_env.as_deref(), Some("ACME_API_KEY"));
        let again = with_provider("config.json5", &changed, &example_provider(), Existing::Keep);
        assert!(matches!(again, Err(EditError::ModelExists { .. })), "{again:?}");
        let same = with_provider("config.json5", &changed, &example_provider(), Existing::Replace).unwrap();
        assert_eq!(Config::parse("config.json5", &same).unwrap(), config);
    }
}

#[test]
fn a_member_is_indented_like_its_neighbours() {
    let text = "{\n\tmodels: {\n\t\tproviders: {\n\t\t\tmoonshot: {} // the first\n\t\t},\n\t},\n}\n";
    let local = NewProvider { id: "ollama".to_owned(), is_local: true, ..NewProvider::default() };
    let changed = with_provider("config.json5", text, &local, Existing::Keep).unwrap();
    let wanted = "{\n\tmodels: {\n\t\tproviders: {\n\t\t\tmoonshot: {}, // the first\n\t\t\tollama: {\n\t\t\t  local: true,\n\t\t\t},\n\t\t},\n\t},\n}\n";
    assert_eq!(changed, wanted);
}

#[test]
fn only_the_entry_itself_is_replaced() {
    let text = "{ models: { providers: { acme: { baseUrl: 'http://127.0.0.1:1', local: true }, // old\n ollama: {} } } }";
    let changed = with_provider("config.json5", text, &example_provider(), Existing::Replace).unwrap();
    assert!(changed.contains("}, // old\n ollama: {} } } }") && !changed.contains("127.0.0.1"), "{changed}");
}

#[test]
fn an_edit_with_an_invalid_input_or_result_is_rejected() {
    for text in ["", "{", "{ models: 7 }", "{ unknown: 1 }", "[]", "{ log: {}, log: {} }"] {
        let refused = with_provider("config.json5", text, &example_provider(), Existing::Replace);
        assert!(matches!(refused, Err(EditError::Before(_))), "{text}: {refused:?}");
    }
    let nowhere = NewProvider { base_url: None, ..example_provider() };
    let refused = with_provider("config.json5", "{}", &nowhere, Existing::Keep).unwrap_err();
    assert!(refused.to_string().contains("give its `baseUrl`"), "{refused}");
}

#[test]
fn a_name_cannot_inject_other_keys() {
    for name in ["x\": {} }, log: { level: \"debug\" } //", "a\nb", "}", "'", "__proto__", "1e3"] {
        let models =
            vec![DeclaredModel { name: name.to_owned(), context_window: 8192, max_output_tokens: 1024 }];
        let odd = NewProvider { models, ..example_provider() };
        // Either rejected or stored under exactly this name; the editor itself compares the rest.
        if let Ok(changed) = with_provider("config.json5", "{}", &odd, Existing::Keep) {
            let config = Config::parse("config.json5", &changed).unwrap();
            assert!(config.models.providers["acme"].models.contains_key(name), "{changed}");
        }
    }
}

#[test]
fn a_pasted_key_is_rejected_and_not_repeated() {
    let known = ["sk-ant", "-api03-", &"x".repeat(40)].concat();
    let unknown = "8f3b2c9e71d04a56b8c2";
    let shouted = "QWERTYUIOPASDFGHJKLZXCVBNM12";
    let given = [
        NewProvider { key_env: Some(known.clone()), ..example_provider() },
        NewProvider { key_env: Some(unknown.to_owned()), ..example_provider() },
        NewProvider { key_env: Some(shouted.to_owned()), ..example_provider() },
        NewProvider { base_url: Some(format!("https://x.example/{known}")), ..example_provider() },
        NewProvider { id: known.clone(), ..example_provider() },
        NewProvider {
            models: vec![DeclaredModel { name: known.clone(), context_window: 8192, max_output_tokens: 1 }],
            ..example_provider()
        },
    ];
    for provider in given {
        let refused = with_provider("config.json5", "{}", &provider, Existing::Keep).unwrap_err();
        assert!(matches!(refused, EditError::Secret(_) | EditError::NoVariable), "{refused}");
        let line = refused.to_string();
        assert!([known.as_str(), unknown, shouted].iter().all(|key| !line.contains(key)), "{line}");
    }
}

#[test]
fn a_symlink_is_kept_and_a_missing_file_is_created() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("kept/mine.json5"), folder.path().join("config.json5"));
    std::fs::create_dir(folder.path().join("kept")).unwrap();
    std::fs::write(&real, "// mine\n{}\n").unwrap();
    symlink(&real, &link).unwrap();
    add_provider(&link, &example_provider(), Existing::Keep).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read_to_string(&real).unwrap().starts_with("// mine\n{\n  models: {"));
    std::fs::remove_file(&link).unwrap();
    add_provider(&link, &example_provider(), Existing::Keep).unwrap();
    assert!(Config::load(&link).unwrap().models.providers.contains_key("acme"));
}

#[test]
fn concurrent_additions_are_all_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json5");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (path, provider) = (&path, NewProvider { id: format!("p{n}"), ..example_provider() });
            scope.spawn(move || add_provider(path, &provider, Existing::Keep).unwrap());
        }
    });
    let config = Config::load(&path).unwrap();
    assert!((0..8).all(|n| config.models.providers.contains_key(&format!("p{n}"))));
}

fn small_model(name: &str) -> DeclaredModel {
    DeclaredModel { name: name.to_owned(), context_window: 4096, max_output_tokens: 512 }
}

#[test]
fn models_are_added_to_an_existing_provider() {
    let only = |models: &[&str]| NewProvider {
        id: "acme".to_owned(),
        models: models.iter().map(|name| small_model(name)).collect(),
        ..NewProvider::default()
    };
    let texts = [
        added("{}"),
        "{ models: { providers: { acme: { baseUrl: 'http://127.0.0.1:1', local: true } } } } // end".to_owned(),
        "{ models: { providers: { acme: { local: true, baseUrl: 'http://127.0.0.1:1', models: {} /* none */ } } } }"
            .to_owned(),
    ];
    for text in texts {
        let before = Config::parse("config.json5", &text).unwrap().models.providers["acme"].clone();
        let changed =
            with_provider("config.json5", &text, &only(&["two:2b", "three"]), Existing::Keep).unwrap();
        let mut after = Config::parse("config.json5", &changed).unwrap().models.providers["acme"].clone();
        assert_eq!(after.models["two:2b"].context_window, 4096);
        assert!(after.models.remove("two:2b").is_some() && after.models.remove("three").is_some());
        assert_eq!(after, before, "{changed}");
        // Values that repeat the existing ones are accepted.
        let same = NewProvider { models: vec![small_model("four")], ..example_provider() };
        let said = with_provider("config.json5", &added("{}"), &same, Existing::Keep);
        assert!(said.is_ok(), "{said:?}");
    }
    let other = NewProvider { base_url: Some("https://elsewhere.example".to_owned()), ..example_provider() };
    for wrong in [other, only(&[])] {
        let refused = with_provider("config.json5", &added("{}"), &wrong, Existing::Keep);
        assert!(matches!(refused, Err(EditError::Exists(_))), "{refused:?}");
    }
}

#[test]
fn a_key_is_not_sent_over_http_to_another_machine() {
    for (url, is_taken) in [
        ("http://models.example.org/v1", false),
        ("http://10.0.0.1", false),
        ("http://127.0.0.1:8080", true),
        ("http://localhost", true),
        ("https://models.example.org", true),
    ] {
        let provider = NewProvider { base_url: Some(url.to_owned()), ..example_provider() };
        let said = with_provider("config.json5", "{}", &provider, Existing::Keep);
        assert_eq!(said.is_ok(), is_taken, "{url}: {said:?}");
        assert_eq!(matches!(said, Err(EditError::Insecure(_))), !is_taken);
    }
    // Without a key there is no secret to intercept.
    let bare = NewProvider {
        base_url: Some("http://10.0.0.1".to_owned()),
        key_env: None,
        is_local: true,
        ..example_provider()
    };
    assert!(with_provider("config.json5", "{}", &bare, Existing::Keep).is_ok());
}
