//! Server reflection: clients without generated code discover the API.

use futures::stream;
use prost::Message;
use prost_reflect::DescriptorPool;
use prost_reflect::prost_types::{DescriptorProto, FileDescriptorProto, ServiceDescriptorProto};
use tonic::Code;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ExtensionRequest, ServerReflectionRequest};

use super::support::{Kind, Server};

/// Sends requests on one stream and returns their responses.
async fn ask(server: &Server, questions: Vec<MessageRequest>) -> Vec<MessageResponse> {
    let requests = questions
        .into_iter()
        .map(|question| ServerReflectionRequest { host: String::new(), message_request: Some(question) });
    let requests = stream::iter(requests.collect::<Vec<_>>());
    let mut client = ServerReflectionClient::new(server.channel().await);
    let mut answers = client.server_reflection_info(requests).await.expect("the service is registered").into_inner();
    let mut all = Vec::new();
    while let Some(answer) = answers.message().await.expect("the stream is open") {
        all.push(answer.message_response.expect("a message has a response"));
    }
    all
}

fn files(answer: &MessageResponse) -> Vec<FileDescriptorProto> {
    let MessageResponse::FileDescriptorResponse(answer) = answer else { panic!("not a file descriptor: {answer:?}") };
    let decode = |file: &Vec<u8>| FileDescriptorProto::decode(&file[..]).expect("a file descriptor can be decoded");
    answer.file_descriptor_proto.iter().map(decode).collect()
}

#[tokio::test]
async fn all_services_are_listed() {
    let server = Server::start(Kind::Gitcd).await;
    let answers = ask(&server, vec![MessageRequest::ListServices(String::new())]).await;
    let [MessageResponse::ListServicesResponse(list)] = &answers[..] else { panic!("not a list: {answers:?}") };
    let listed: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for service in [
        "etcdserverpb.Auth",
        "etcdserverpb.Cluster",
        "etcdserverpb.KV",
        "etcdserverpb.Lease",
        "etcdserverpb.Maintenance",
        "etcdserverpb.Watch",
        "v3electionpb.Election",
        "v3lockpb.Lock",
        "grpc.health.v1.Health",
    ] {
        assert!(listed.contains(&service), "{service} is not in {listed:?}");
    }
}

#[tokio::test]
async fn a_symbol_leads_to_files_that_describe_it() {
    let server = Server::start(Kind::Gitcd).await;
    let symbols = ["etcdserverpb.KV", "etcdserverpb.RangeRequest", "v3lockpb.Lock", "mvccpb.KeyValue"];
    let questions = symbols.map(|symbol| MessageRequest::FileContainingSymbol(symbol.to_owned())).to_vec();
    let answers = ask(&server, questions).await;
    assert_eq!(answers.len(), symbols.len());
    for (symbol, answer) in symbols.iter().zip(&answers) {
        let (package, name) = symbol.rsplit_once('.').expect("a symbol has a package");
        let has = |file: &FileDescriptorProto| {
            let services = file.service.iter().map(ServiceDescriptorProto::name);
            let messages = file.message_type.iter().map(DescriptorProto::name);
            file.package() == package && services.chain(messages).any(|found| found == name)
        };
        assert!(files(answer).iter().any(has), "{symbol}: {answer:?}");
    }
    // By file name, following imports as clients do.
    let mut pool = Vec::new();
    let mut missing = vec!["rpc.proto".to_owned()];
    while let Some(name) = missing.pop() {
        let answers = ask(&server, vec![MessageRequest::FileByFilename(name)]).await;
        let file = files(&answers[0]).remove(0);
        missing.extend(
            file.dependency
                .iter()
                .filter(|name| !pool.iter().any(|file: &FileDescriptorProto| file.name() == *name))
                .cloned(),
        );
        pool.push(file);
    }
    let mut described = DescriptorPool::new();
    described.add_file_descriptor_protos(pool).expect("the files are complete");
    let service = described.get_service_by_name("etcdserverpb.KV").expect("the service is described");
    let methods: Vec<_> = service.methods().map(|method| method.name().to_owned()).collect();
    assert_eq!(methods, ["Range", "RangeStream", "Put", "DeleteRange", "Txn", "Compact"]);
}

#[tokio::test]
async fn what_is_not_there_is_not_found_and_the_next_question_is_answered() {
    let server = Server::start(Kind::Gitcd).await;
    let symbol = |symbol: &str| MessageRequest::FileContainingSymbol(symbol.to_owned());
    let extension = ExtensionRequest { containing_type: "etcdserverpb.RangeRequest".into(), extension_number: 7 };
    let wrong = [
        symbol("etcdserverpb.None"),
        symbol(""),
        MessageRequest::FileByFilename("none.proto".to_owned()),
        MessageRequest::FileContainingExtension(extension),
        MessageRequest::AllExtensionNumbersOfType("etcdserverpb.None".to_owned()),
    ];
    let mut questions = wrong.to_vec();
    questions.push(MessageRequest::AllExtensionNumbersOfType("etcdserverpb.RangeRequest".to_owned()));
    questions.push(symbol("etcdserverpb.KV"));
    let answers = ask(&server, questions).await;
    assert_eq!(answers.len(), wrong.len() + 2, "{answers:?}");
    for (wrong, answer) in wrong.iter().zip(&answers) {
        let MessageResponse::ErrorResponse(error) = answer else { panic!("{wrong:?}: {answer:?}") };
        assert_eq!(error.error_code, i32::from(Code::NotFound), "{wrong:?}: {error:?}");
    }
    let MessageResponse::AllExtensionNumbersResponse(none) = &answers[wrong.len()] else { panic!("{answers:?}") };
    assert_eq!((&*none.base_type_name, &none.extension_number[..]), ("etcdserverpb.RangeRequest", &[][..]));
    assert!(!files(&answers[wrong.len() + 1]).is_empty());
}

#[tokio::test]
async fn a_file_comes_with_what_it_imports_and_each_of_those_once() {
    let server = Server::start(Kind::Gitcd).await;
    let symbol = |symbol: &str| MessageRequest::FileContainingSymbol(symbol.to_owned());
    let answers = ask(&server, vec![symbol("etcdserverpb.KV.Range"), symbol("mvccpb.KeyValue.key")]).await;
    let first = files(&answers[0]);
    let mut described = DescriptorPool::new();
    described.add_file_descriptor_protos(first.clone()).expect("the first response includes all imports");
    let names: Vec<_> = first.iter().map(FileDescriptorProto::name).collect();
    assert_eq!(names[0], "rpc.proto");
    let again: Vec<_> = files(&answers[1]).iter().map(|file| file.name().to_owned()).collect();
    assert!(names.contains(&&*again[0]) && again.len() == 1, "{again:?} after {names:?}");
}

#[tokio::test]
async fn a_question_that_asks_nothing_ends_the_stream() {
    let server = Server::start(Kind::Gitcd).await;
    let mut client = ServerReflectionClient::new(server.channel().await);
    let request = ServerReflectionRequest { host: String::new(), message_request: None };
    let answers = client.server_reflection_info(stream::iter([request])).await.expect("the service is registered");
    let refused = answers.into_inner().message().await.expect_err("an empty request is invalid");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
}
