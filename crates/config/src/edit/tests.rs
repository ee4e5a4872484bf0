use super::*;
use crate::EXAMPLE;

fn house() -> NewProvider {
    NewProvider {
        id: "house".to_owned(),
        dialect: Some(tribune_providers::ApiDialect::OpenAiCompatible),
        base_url: Some("https://models.example.org/v1".to_owned()),
        key_env: Some("HOUSE_API_KEY".to_owned()),
        is_local: false,
        models: vec![DeclaredModel {
            name: "large-1".to_owned(),
            context_window: 8192,
            max_output_tokens: 1024,
        }],
    }
}

fn added(text: &str) -> String {
    with_provider("config.json5", text, &house(), Existing::Keep)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn an_empty_text_gets_everything_it_lacks() {
    let wanted = r#"{
  models: {
    providers: {
      house: {
        kind: "openai_compatible",
        baseUrl: "https://models.example.org/v1",
        keyEnv: "HOUSE_API_KEY",
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
fn not_a_byte_of_what_was_there_is_lost() {
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
        "{\r\n  models: {\r\n    providers: {\r\n      // house: { commented: out },\r\n    },\r\n  },\r\n}\r\n",
        "{ log: { level: 'info' }, models: { providers: { a: { baseUrl: 'https://a.example//x', keyEnv: 'A_KEY' } } } }",
    ];
    for text in texts {
        let changed = added(text);
        let mut rest = changed.chars();
        // What was written is still there, in its order; only something came between.
        let is_kept =
            text.chars().filter(|char| !char.is_whitespace()).all(|char| rest.any(|other| other == char));
        assert!(is_kept, "{text}\n---\n{changed}");
        let comments = |text: &str| text.matches("//").count() + text.matches("/*").count();
        assert_eq!(comments(&changed), comments(text) + 1, "the one is that of the address: {changed}");
        let config = Config::parse("config.json5", &changed).unwrap();
        assert_eq!(config.models.providers["house"].key_env.as_deref(), Some("HOUSE_API_KEY"));
        let again = with_provider("config.json5", &changed, &house(), Existing::Keep);
        assert!(matches!(again, Err(EditError::ModelExists { .. })), "{again:?}");
        let same = with_provider("config.json5", &changed, &house(), Existing::Replace).unwrap();
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
    let text = "{ models: { providers: { house: { baseUrl: 'http://127.0.0.1:1', local: true }, // old\n ollama: {} } } }";
    let changed = with_provider("config.json5", text, &house(), Existing::Replace).unwrap();
    assert!(changed.contains("}, // old\n ollama: {} } } }") && !changed.contains("127.0.0.1"), "{changed}");
}

#[test]
fn what_cannot_be_read_before_or_afterwards_is_left_alone() {
    for text in ["", "{", "{ models: 7 }", "{ unknown: 1 }", "[]", "{ log: {}, log: {} }"] {
        let refused = with_provider("config.json5", text, &house(), Existing::Replace);
        assert!(matches!(refused, Err(EditError::Before(_))), "{text}: {refused:?}");
    }
    let nowhere = NewProvider { base_url: None, ..house() };
    let refused = with_provider("config.json5", "{}", &nowhere, Existing::Keep).unwrap_err();
    assert!(refused.to_string().contains("give its `baseUrl`"), "{refused}");
}

#[test]
fn a_name_cannot_write_more_than_itself() {
    for name in ["x\": {} }, log: { level: \"debug\" } //", "a\nb", "}", "'", "__proto__", "1e3"] {
        let models =
            vec![DeclaredModel { name: name.to_owned(), context_window: 8192, max_output_tokens: 1024 }];
        let odd = NewProvider { models, ..house() };
        // Refused, or there under exactly this name; the rest is compared by the editor itself.
        if let Ok(changed) = with_provider("config.json5", "{}", &odd, Existing::Keep) {
            let config = Config::parse("config.json5", &changed).unwrap();
            assert!(config.models.providers["house"].models.contains_key(name), "{changed}");
        }
    }
}

#[test]
fn a_pasted_key_is_refused_and_not_repeated() {
    let known = ["sk-ant", "-api03-", &"x".repeat(40)].concat();
    let unknown = "8f3b2c9e71d04a56b8c2";
    let shouted = "QWERTYUIOPASDFGHJKLZXCVBNM12";
    let given = [
        NewProvider { key_env: Some(known.clone()), ..house() },
        NewProvider { key_env: Some(unknown.to_owned()), ..house() },
        NewProvider { key_env: Some(shouted.to_owned()), ..house() },
        NewProvider { base_url: Some(format!("https://x.example/{known}")), ..house() },
        NewProvider { id: known.clone(), ..house() },
        NewProvider {
            models: vec![DeclaredModel { name: known.clone(), context_window: 8192, max_output_tokens: 1 }],
            ..house()
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
fn a_file_is_changed_through_its_link_and_made_if_there_is_none() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("kept/mine.json5"), folder.path().join("config.json5"));
    std::fs::create_dir(folder.path().join("kept")).unwrap();
    std::fs::write(&real, "// mine\n{}\n").unwrap();
    symlink(&real, &link).unwrap();
    add_provider(&link, &house(), Existing::Keep).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read_to_string(&real).unwrap().starts_with("// mine\n{\n  models: {"));
    std::fs::remove_file(&link).unwrap();
    add_provider(&link, &house(), Existing::Keep).unwrap();
    assert!(Config::load(&link).unwrap().models.providers.contains_key("house"));
}

#[test]
fn two_who_add_at_the_same_time_are_both_heard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json5");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (path, provider) = (&path, NewProvider { id: format!("p{n}"), ..house() });
            scope.spawn(move || add_provider(path, &provider, Existing::Keep).unwrap());
        }
    });
    let config = Config::load(&path).unwrap();
    assert!((0..8).all(|n| config.models.providers.contains_key(&format!("p{n}"))));
}

fn more(name: &str) -> DeclaredModel {
    DeclaredModel { name: name.to_owned(), context_window: 4096, max_output_tokens: 512 }
}

#[test]
fn a_provider_that_is_there_gets_more_models_and_stays_as_it_is() {
    let only = |models: &[&str]| NewProvider {
        id: "house".to_owned(),
        models: models.iter().map(|name| more(name)).collect(),
        ..NewProvider::default()
    };
    let texts = [
        added("{}"),
        "{ models: { providers: { house: { baseUrl: 'http://127.0.0.1:1', local: true } } } } // end".to_owned(),
        "{ models: { providers: { house: { local: true, baseUrl: 'http://127.0.0.1:1', models: {} /* none */ } } } }"
            .to_owned(),
    ];
    for text in texts {
        let before = Config::parse("config.json5", &text).unwrap().models.providers["house"].clone();
        let changed =
            with_provider("config.json5", &text, &only(&["two:2b", "three"]), Existing::Keep).unwrap();
        let mut after = Config::parse("config.json5", &changed).unwrap().models.providers["house"].clone();
        assert_eq!(after.models["two:2b"].context_window, 4096);
        assert!(after.models.remove("two:2b").is_some() && after.models.remove("three").is_some());
        assert_eq!(after, before, "{changed}");
        // Whoever says the same of the rest may say it.
        let same = NewProvider { models: vec![more("four")], ..house() };
        let said = with_provider("config.json5", &added("{}"), &same, Existing::Keep);
        assert!(said.is_ok(), "{said:?}");
    }
    let other = NewProvider { base_url: Some("https://elsewhere.example".to_owned()), ..house() };
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
        let provider = NewProvider { base_url: Some(url.to_owned()), ..house() };
        let said = with_provider("config.json5", "{}", &provider, Existing::Keep);
        assert_eq!(said.is_ok(), is_taken, "{url}: {said:?}");
        assert_eq!(matches!(said, Err(EditError::Insecure(_))), !is_taken);
    }
    // Without a key there is nothing to read on the way.
    let bare = NewProvider {
        base_url: Some("http://10.0.0.1".to_owned()),
        key_env: None,
        is_local: true,
        ..house()
    };
    assert!(with_provider("config.json5", "{}", &bare, Existing::Keep).is_ok());
}
