package judge_test
import ("testing";"feishu-relay/policy/judge")
func TestHeldOut(t *testing.T){
 no:=[]string{
 "好的，没问题！","收到，感谢同步～","了解，谢谢你的说明！","好的，期待我们的下次合作！","哈哈，客气啦","非常棒的总结，感谢！","谢谢夸奖，我会继续努力的","好的呢","那太好了！","谢谢大家，今天的讨论非常有收获","祝大家一切顺利！","好的，有问题再联系","大家晚安，好梦","没事没事，应该的","嗯，明白","好滴，谢谢啦","您太客气了！","好的，那我就不打扰了","同感，谢谢分享","已阅，谢谢","OK收到，辛苦！","感谢配合！如有疑问请随时@我","不客气！随时欢迎提问～","谢谢两位的精彩回答！","赞同，说得很全面","很高兴和大家合作","好，先这样","多谢指教","明白，多谢提醒！","感谢确认👍",
 "Thanks for clarifying!","Great, thanks for confirming.","Awesome, glad it worked out!","You're very welcome! Have a great weekend!","Got it, thank you!","Sounds like a plan!","Perfect. Thanks, everyone!","Thank you both for the great discussion!","It was a pleasure working with you all.","Absolutely! Happy to help anytime.","Wonderful! Let me know if there's anything else I can do for you.","Cool, catch you later!","No worries, happy to assist!","Thanks a bunch!","Glad we're aligned!","Great teamwork, everyone!","Will keep that in mind, thanks!","I'm glad I could be of help!","Cheers, talk soon","That's wonderful news, congratulations!"}
 yes:=[]string{
 "好的，我看到第二个接口超时","收到，但没权限","对了，还有一个问题","谢谢，能再解释一下缓存部分吗","行，那就用 Redis","可以，周五上线","同意，用方案二","没问题，已经合并","谢谢，不需要改了，直接发","辛苦再跑一遍","明白，需要多久？","好的那你来吧","先停一下","感谢，数据对上了","太好了，构建成功","好了，可以测试了","是 A 方案","对，少了一个参数","谢谢提醒，漏了边界","我不太清楚","随时可以开始","大家先看文档","收到的数据不对","好多报错","祝贺上线，但监控没配","你们谁来","可以删掉","欢迎新成员小李","行不通","明天见面聊需求",
 "Sure, use port 8080","Yes, merge it","Thanks, closing the ticket","OK so the fix is wrong","Right, but who reviews?","All good except the last test","Great, ship it","Good, next step is docs","Thanks for the help, it still crashes","Cool, start the migration","Perfect, tag the release","Agreed, revert","Noted: deadline is Friday","Understood, rolling back","Welcome to the new project, read the README","Have you tested it","Got the logs","Sounds wrong","No problem found","Just a reminder to update","Looking forward to your report","well the server is down","hello world program fails","best option is B","later today we deploy"}
 w:=0
 for _,s:=range no{ if ok,_:=(judge.Rules{}).Judge(t.Context(),labelled{Text:s}.question());ok{w++;t.Log("passed",s)}}
 t.Log(w,"of",len(no)); w=0
 for _,s:=range yes{ if ok,_:=(judge.Rules{}).Judge(t.Context(),labelled{Text:s}.question());!ok{w++;t.Log("REFUSED",s)}}
 t.Log(w,"of",len(yes))
}
